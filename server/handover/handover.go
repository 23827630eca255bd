// Package handover passes the listening sockets of a process to its successor, so that a server is restarted without
// refusing a connection. Both processes have the same sockets of the system, with one backlog. So a connection that arrives
// during the restart is accepted by one of them, and Shutdown of the servers of this module answers the first request of
// each connection that was accepted before.
//
//	set, err := handover.Inherit()
//	l, err := set.Listen("http", "tcp", ":8080") // the predecessor's, if there is one
//	go s.Serve(l)
//	err = set.Ready()                            // the predecessor ends
//	<-restart                                    // such as SIGHUP
//	err = set.Start(ctx, exec.Command(os.Args[0], os.Args[1:]...))
//	err = s.Shutdown(ctx)                        // serves what it has accepted
//
// The first process can get its sockets from systemd (socket activation: LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES). If
// NOTIFY_SOCKET is set, Ready and Start notify systemd, so a unit has Type=notify. A socket unit gives its socket a name with
// FileDescriptorName; without it the name is that of the unit.
//
// The package works on Unix. On Windows nothing is inherited, and Start fails.
package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/sock"
)

// A Set has the listeners of a process. All methods may be called concurrently.
type Set struct {
	mu        sync.Mutex
	listeners []listener // in use
	inherited []listener // not yet asked for
	ready     *os.File   // tells the predecessor; nil if there is none
	started   bool       // a successor is ready or being started
}

// A listener is a listener of a Set.
type listener struct {
	net.Listener
	name   string
	unlink bool // it is a Unix socket whose path is removed at the end
}

const (
	firstFD = 3
	unknown = "unknown" // systemd's name for a descriptor without one
	// The variable of Start for the successor. It has a 1 for each listener whose path is to be removed, and a 0 for others.
	variable = "SOCKNOTIFY_HANDOVER"
)

var (
	// ErrNotReady is returned by Start for a process that has ended, or closed its descriptors, without calling Ready.
	ErrNotReady = errors.New("handover: successor has ended before it was ready")
	// ErrStarted is returned by a second Start, while the first runs or after it has succeeded.
	ErrStarted = errors.New("handover: a successor was started already")
)

// Inherit returns the listeners that the process was started with: by Start, or by systemd. The Set is empty if there are
// none. Inherit removes the variables from the environment, so it must be called once, before other processes are started.
func Inherit() (*Set, error) {
	flags, fromStart := os.LookupEnv(variable)
	pid, _ := strconv.Atoi(os.Getenv("LISTEN_PID"))
	s := new(Set)
	if !fromStart && pid != os.Getpid() {
		return s, nil
	}
	count, names := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{variable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("handover: LISTEN_FDS is %q, want a number", count)
	}
	if fromStart {
		fd := uintptr(firstFD + n)
		closeOnExec(fd) // other processes would keep it open, and the predecessor would not notice the end of this one
		s.ready = os.NewFile(fd, "ready")
	}
	var each []string
	if names != "" {
		each = strings.Split(names, ":")
	}
	for i := range n {
		l := listener{name: unknown}
		if i < len(each) && each[i] != "" {
			l.name = each[i]
		}
		l.unlink = i < len(flags) && flags[i] == '1'
		f := os.NewFile(uintptr(firstFD+i), l.name)
		l.Listener, err = net.FileListener(f)
		f.Close() // FileListener has duplicated it
		if err != nil {
			s.closeInherited()
			s.ready.Close() // the predecessor's Start fails; it may be nil
			return nil, fmt.Errorf("handover: descriptor %d, %q, is no listener: %w", firstFD+i, l.name, err)
		}
		s.inherited = append(s.inherited, l)
	}
	return s, nil
}

// Take returns the inherited listeners with a name, which may be several, and none if there are no more. A successor gets
// them as well.
func (s *Set) Take(name string) []net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(name)
}

func (s *Set) take(name string) (taken []net.Listener) {
	s.inherited = slices.DeleteFunc(s.inherited, func(l listener) bool {
		if l.name == name {
			taken = append(taken, l.Listener)
			s.listeners = append(s.listeners, l)
		}
		return l.name == name
	})
	return taken
}

// named is take. If there is no inherited listener with the name, and only one is left, and systemd has not given a name to
// that one, named returns it, and it has the name from then on.
func (s *Set) named(name string) []net.Listener {
	if taken := s.take(name); len(taken) > 0 || len(s.inherited) != 1 {
		return taken
	}
	// Without FileDescriptorName, systemd gives a socket the name of its unit.
	if l := &s.inherited[0]; l.name == unknown || strings.HasSuffix(l.name, ".socket") {
		l.name = name
	}
	return s.take(name)
}

// Listen returns the inherited listener with a name, or calls net.Listen if there is none. If a single listener is left that
// was inherited from systemd without a FileDescriptorName, Listen returns that one. The address of an inherited listener is
// not compared with the one asked for. If an address may change from one process to the next, use it as the name.
func (s *Set) Listen(name, network, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch taken := s.named(name); len(taken) {
	case 1:
		return taken[0], nil
	case 0:
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, s.withInherited(name, err)
		}
		if err := s.add(name, l); err != nil {
			l.Close()
			return nil, err
		}
		return l, nil
	default:
		return nil, fmt.Errorf("handover: %d listeners are named %q, want one", len(taken), name)
	}
}

// withInherited adds the names of the listeners that were inherited and not asked for to an error.
func (s *Set) withInherited(name string, err error) error {
	if len(s.inherited) == 0 {
		return err
	}
	var names []string
	for _, l := range s.inherited {
		names = append(names, fmt.Sprintf("%q (%s)", l.name, l.Addr()))
	}
	return fmt.Errorf("handover: no inherited listener is named %q, but %s: %w", name, strings.Join(names, ", "), err)
}

// Group returns all inherited listeners with a name, or n new ones that share the connections to an address by
// SO_REUSEPORT, as sock.ListenTCPGroup makes them. A successor gets the whole group, because the connections in the backlog
// of a socket that is closed would be lost. So if the group was inherited, its size is that of the predecessor's.
func (s *Set) Group(name string, address netip.AddrPort, n int) ([]net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken := s.named(name); len(taken) > 0 {
		return taken, nil
	}
	sockets, err := sock.ListenTCPGroup(address, sock.ListenOptions{ReusePort: true}, n)
	if err != nil {
		return nil, s.withInherited(name, err)
	}
	var group []net.Listener
	for i, socket := range sockets {
		l, err := sock.AttachListener(socket)
		if err == nil {
			group = append(group, l)
			err = s.add(name, l)
		}
		if err != nil {
			for _, l := range group {
				l.Close()
			}
			for _, socket := range sockets[i:] {
				socket.Close()
			}
			s.listeners = slices.DeleteFunc(s.listeners, func(l listener) bool { return l.name == name })
			return nil, err
		}
	}
	return group, nil
}

// Add adds a listener that a successor is to get: a *net.TCPListener, a *net.UnixListener, or a wrapper of one that package
// server can serve. The name must not be empty, and have no colon.
func (s *Set) Add(name string, l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(name, l)
}

func (s *Set) add(name string, l net.Listener) error {
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
		return fmt.Errorf("handover: bad name %q: want 1 to 255 printable ASCII characters without a colon", name)
	}
	found, err := unwrap.FindListener(l)
	if err != nil {
		return fmt.Errorf("handover: listener: %w", err)
	}
	bottom, ok := found.Conn.(net.Listener)
	if _, can := bottom.(filer); !ok || !can {
		return fmt.Errorf("handover: %T has no method File", found.Conn)
	}
	a, ok := bottom.Addr().(*net.UnixAddr)
	s.listeners = append(s.listeners, listener{bottom, name, ok && a.Name != "" && a.Name[0] != '@'})
	return nil
}

// A filer is a listener of package net.
type filer interface{ File() (*os.File, error) }

// Ready says that this process accepts connections: to its predecessor, whose Start then returns, and to systemd. It closes
// the inherited listeners that were not asked for. From now on the path of a Unix socket that this process or a
// predecessor has made is removed when its listener is closed.
//
// Ready fails if systemd has asked to be notified and cannot be. It has done the rest then, and the process can serve. It
// does not fail if the predecessor has ended.
func (s *Set) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeInherited()
	for _, l := range s.listeners {
		l.removesPath(l.unlink)
	}
	state := "READY=1"
	if s.ready != nil {
		_, err := s.ready.Write([]byte{1})
		s.ready.Close()
		s.ready = nil
		if err == nil {
			return nil // the predecessor notifies systemd
		}
		state += "\nMAINPID=" + strconv.Itoa(os.Getpid())
	}
	systemd, err := dialSystemd()
	if err == nil {
		err = notify(systemd, state)
	}
	return err
}

func (s *Set) closeInherited() {
	for _, l := range s.inherited {
		l.Close()
	}
	s.inherited = nil
}

// removesPath selects whether closing the listener removes its path, if it has one.
func (l *listener) removesPath(is bool) {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(is)
	}
}

// Start starts a successor with the listeners of the set, and returns nil when it has called Ready. The caller then ends
// its own servers, with Shutdown, and may call cmd.Wait or not. The paths of Unix sockets stay.
//
// If the successor ends before it is ready, or the context is done, Start kills it, waits for it and returns an error.
// Start also fails, and starts nothing, if systemd has asked to be notified and cannot be reached: it would end the
// successor together with this process. After an error this process serves on, and may call Start again. If systemd can no
// longer be reached when the successor is ready, Start logs that by package slog and returns nil.
//
// cmd must not have ExtraFiles.
func (s *Set) Start(ctx context.Context, cmd *exec.Cmd) error {
	s.mu.Lock()
	if s.started {
		s.mu.Unlock()
		return ErrStarted
	}
	s.started = true
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	systemd, err := dialSystemd()
	if err == nil {
		err = start(ctx, cmd, listeners)
	}
	if err != nil {
		if systemd != nil {
			systemd.Close()
		}
		s.mu.Lock()
		s.started = false
		s.mu.Unlock()
		return err
	}
	for _, l := range listeners {
		l.removesPath(false)
	}
	if err := notify(systemd, "MAINPID="+strconv.Itoa(cmd.Process.Pid)); err != nil {
		slog.Warn("handover: systemd does not know the process id of the successor", "pid", cmd.Process.Pid, "err", err)
	}
	return nil
}

func start(ctx context.Context, cmd *exec.Cmd, listeners []listener) error {
	if len(cmd.ExtraFiles) > 0 {
		return errors.New("handover: the command has ExtraFiles")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	var names []string
	flags := ""
	for _, l := range listeners {
		f, err := l.Listener.(filer).File()
		if err != nil {
			cmd.ExtraFiles = nil
			return fmt.Errorf("handover: listener %q: %w", l.name, err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		names = append(names, l.name)
		flags += map[bool]string{false: "0", true: "1"}[l.unlink]
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LISTEN_PID=") || strings.HasPrefix(v, "LISTEN_FDS=") || strings.HasPrefix(v, "LISTEN_FDNAMES=")
	})
	cmd.Env = append(cmd.Env, "LISTEN_FDS="+strconv.Itoa(len(listeners)), "LISTEN_FDNAMES="+strings.Join(names, ":"), variable+"="+flags)
	if err := cmd.Start(); err != nil {
		return err
	}
	w.Close() // so that the end of the process is noticed
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := r.Read(make([]byte, 1))
	if n == 1 {
		return nil
	}
	cmd.Process.Kill()
	end := cmd.Wait()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return errors.Join(ErrNotReady, end)
}

// dialSystemd connects to the socket on which systemd is notified. It returns nil if systemd has not asked for that.
func dialSystemd() (*net.UnixConn, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("handover: NOTIFY_SOCKET: %w", err)
	}
	return c, nil
}

// notifyTimeout bounds the time for which notify waits for systemd to take a state.
const notifyTimeout = 5 * time.Second

// notify sends a state by the result of dialSystemd, and closes that.
func notify(systemd *net.UnixConn, state string) error {
	if systemd == nil {
		return nil
	}
	defer systemd.Close()
	systemd.SetWriteDeadline(time.Now().Add(notifyTimeout))
	if _, err := systemd.Write([]byte(state)); err != nil {
		return fmt.Errorf("handover: NOTIFY_SOCKET: %w", err)
	}
	return nil
}
