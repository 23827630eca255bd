//go:build unix

package handover_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/server/handover"
)

const (
	soon = time.Minute
	role = "HANDOVER_TEST_ROLE"
)

func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		os.Unsetenv(role)
		if err := successor(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(m)
}

// successor is the process that the tests start.
func successor(role string) error {
	if role == "dies" {
		return errors.New("a failure")
	}
	set, err := handover.Inherit()
	if err != nil {
		return err
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if v, is := os.LookupEnv(name); is {
			return fmt.Errorf("%s is %q after Inherit", name, v)
		}
	}
	switch role {
	case "hangs":
		time.Sleep(time.Hour) // until it is killed; select{} would be a deadlock, without cgo
	case "spawns": // reports whether a process that it starts has the descriptors of "a", or the one after it
		out, err := exec.Command("sh", "-c", `for fd in 3 4; do eval "(: >&$fd)" 2>/dev/null && echo "$fd is open"; done; echo done`).CombinedOutput()
		fmt.Printf("%s", out)
		return err
	case "asks":
		fmt.Println("started")
		bufio.NewReader(os.Stdin).ReadString('\n')
	case "lists": // what it has inherited, as its output
		for _, name := range []string{"a", "b", "unknown", "a"} {
			for _, l := range set.Take(name) {
				fmt.Printf("%s %s\n", name, l.Addr())
				l.Close()
			}
		}
		return nil
	case "listens": // on the address that it has inherited
		l, err := set.Listen("http", "tcp", os.Getenv("ADDRESS"))
		if err != nil {
			fmt.Println(err)
			return nil
		}
		defer l.Close()
		fmt.Println("listening on", l.Addr())
		more, err := set.Listen("other", "tcp", "127.0.0.1:0") // nothing is left for it
		if err != nil {
			return err
		}
		return more.Close()
	}
	// Otherwise it answers one connection to "a", and "b" stays unused.
	l, err := set.Listen("a", "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := set.Ready(); err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	io.WriteString(c, role)
	c.Close()
	return l.Close()
}

func command(t *testing.T, r string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	if len(args) > 0 {
		cmd = exec.Command(args[0], append(args[1:], self)...)
	}
	cmd.Env = append(os.Environ(), role+"="+r)
	return cmd
}

func inherit(t *testing.T) *handover.Set {
	t.Helper()
	set, err := handover.Inherit()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func listen(t *testing.T, set *handover.Set, name, network, addr string) net.Listener {
	t.Helper()
	l, err := set.Listen(name, network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func read(t *testing.T, network, addr string) string {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	b, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// A connection from before the successor is answered by it. A listener that it does not use refuses connections when both
// processes have closed it. The path of a Unix socket stays for the successor, which removes it.
func TestStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	set := inherit(t)
	a, b := listen(t, set, "a", "unix", path), listen(t, set, "b", "tcp", freeport.Addrs(t, 1)[0])
	early, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	cmd := command(t, "answers")
	if err := set.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	if err := set.Start(t.Context(), command(t, "answers")); err != handover.ErrStarted {
		t.Errorf("a second Start = %v", err)
	}
	b.Close()
	if c, err := net.Dial("tcp", b.Addr().String()); err == nil {
		c.Close()
		t.Error("a listener that the successor does not use is open")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	early.SetDeadline(time.Now().Add(soon))
	if got, err := io.ReadAll(early); string(got) != "answers" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path after the end of the successor: %v", err)
	}
}

// After a successor that fails, the process and its paths are as before, and it can start another.
func TestStartFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	set := inherit(t)
	a := listen(t, set, "a", "unix", path)
	if err := set.Start(t.Context(), command(t, "dies")); !errors.Is(err, handover.ErrNotReady) {
		t.Errorf("Start of a process that dies = %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("too long"))
	defer cancel()
	if err := set.Start(ctx, command(t, "hangs")); err == nil || err.Error() != "too long" {
		t.Errorf("Start of a process that hangs = %v", err)
	}
	if err := set.Start(t.Context(), exec.Command(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Start of no program = %v", err)
	}
	extra := command(t, "answers")
	extra.ExtraFiles = []*os.File{os.Stdin}
	if err := set.Start(t.Context(), extra); err == nil {
		t.Error("Start of a command with ExtraFiles succeeded")
	}
	done := make(chan error, 1)
	go func() { // it still accepts, and is not in blocking mode
		c, err := a.Accept()
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	read(t, "unix", path)
	if err := <-done; err != nil {
		t.Error(err)
	}
	cmd := command(t, "answers")
	if err := set.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got := read(t, "unix", path); got != "answers" {
		t.Errorf("%q", got)
	}
	cmd.Wait()
}

// The members of a group, and of other listeners with one name, are inherited together, and only by the process that
// LISTEN_PID names.
func TestInherited(t *testing.T) {
	set := inherit(t)
	var want strings.Builder
	group, err := set.Group("a", netip.MustParseAddrPort("127.0.0.1:0"), 3)
	if errors.Is(err, errors.ErrUnsupported) {
		group = nil
		for range 3 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if err := set.Add("a", l); err != nil {
				t.Fatal(err)
			}
			group = append(group, l)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	for _, l := range group {
		defer l.Close()
		fmt.Fprintf(&want, "a %s\n", l.Addr())
	}
	fmt.Fprintf(&want, "b %s\n", listen(t, set, "b", "tcp", "127.0.0.1:0").Addr())
	var out strings.Builder
	cmd := command(t, "lists")
	cmd.Stdout = &out
	if err := set.Start(t.Context(), cmd); !errors.Is(err, handover.ErrNotReady) || out.String() != want.String() {
		t.Errorf("%v; inherited:\n%swant:\n%s", err, out.String(), want.String())
	}
	// As systemd does it, by a shell that knows the process id of the program that replaces it.
	file, err := group[0].(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	addr := group[0].Addr().String()
	for script, want := range map[string]string{
		`LISTEN_FDS=2 LISTEN_FDNAMES=b:a LISTEN_PID=$$ exec "$0"`: "a " + addr + "\nb " + addr + "\n",
		`LISTEN_FDS=1 LISTEN_PID=$$ exec "$0"`:                    "unknown " + addr + "\n",
		`LISTEN_FDS=2 LISTEN_FDNAMES=b:a LISTEN_PID=1 exec "$0"`:  "error",
		`LISTEN_FDS=x LISTEN_PID=$$ exec "$0"`:                    "error",
		`LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" 3</dev/null`:        "error",
	} {
		cmd := command(t, "lists", "sh", "-c", script)
		cmd.ExtraFiles = []*os.File{file, file}
		out, err := cmd.Output()
		if err != nil {
			out = []byte("error")
		}
		if string(out) != want {
			t.Errorf("%s: inherited %q, want %q", script, out, want)
		}
	}
}

// A single socket to which systemd has given no name is taken for the one that is asked for. Otherwise the error names what
// was inherited.
func TestInheritedWithoutName(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	addr := l.Addr().String()
	taken := "listening on " + addr
	for script, want := range map[string]string{
		`LISTEN_FDS=1 LISTEN_PID=$$ exec "$0"`:                                taken,
		`LISTEN_FDS=1 LISTEN_FDNAMES=web.socket LISTEN_PID=$$ exec "$0"`:      taken,
		`LISTEN_FDS=2 LISTEN_FDNAMES=web.socket:http LISTEN_PID=$$ exec "$0"`: taken,
		`LISTEN_FDS=1 LISTEN_FDNAMES=admin LISTEN_PID=$$ exec "$0"`:           `no inherited listener is named "http", but "admin" (` + addr + ")",
		`LISTEN_FDS=2 LISTEN_PID=$$ exec "$0"`:                                `"unknown" (` + addr + `), "unknown" (` + addr + ")",
	} {
		cmd := command(t, "listens", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "ADDRESS="+addr)
		cmd.ExtraFiles = []*os.File{file, file}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, got %q, want %q", script, err, out, want)
		}
	}
}

// Ready and Start notify systemd.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(soon))
	t.Setenv("NOTIFY_SOCKET", path)
	expect := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		if n, err := c.Read(b); string(b[:n]) != want {
			t.Errorf("notified of %q, %v; want %q", b[:n], err, want)
		}
	}
	set := inherit(t)
	l := listen(t, set, "a", "tcp", "127.0.0.1:0")
	if err := set.Ready(); err != nil {
		t.Error(err)
	}
	expect("READY=1")
	cmd := command(t, "answers")
	if err := set.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	expect(fmt.Sprint("MAINPID=", cmd.Process.Pid))
	read(t, "tcp", l.Addr().String())
	cmd.Wait()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := set.Ready(); err == nil {
		t.Error("Ready without systemd succeeded")
	}
}

// If systemd cannot be reached, Start starts nothing. If it can no longer be reached when the successor is ready, the
// successor serves.
func TestStartUnnotified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	t.Setenv("NOTIFY_SOCKET", path)
	set := inherit(t)
	l := listen(t, set, "a", "tcp", "127.0.0.1:0")
	none := command(t, "answers")
	if err := set.Start(t.Context(), none); err == nil || none.Process != nil {
		t.Fatalf("Start without systemd = %v, and the process is %v", err, none.Process)
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "asks")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() { result <- set.Start(t.Context(), cmd) }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Errorf("%q, %v", line, err)
	}
	c.Close()
	io.WriteString(in, "\n")
	if err := <-result; err != nil {
		t.Errorf("Start = %v, although the successor runs", err)
	}
	l.Close()
	if got := read(t, "tcp", l.Addr().String()); got != "asks" {
		t.Errorf("%q", got)
	}
	cmd.Wait()
}

// A successor whose predecessor has ended serves.
func TestReadyAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	cmd := command(t, "answers")
	cmd.ExtraFiles = []*os.File{file, w}
	cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=a", "SOCKNOTIFY_HANDOVER=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- cmd.Wait() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-done; err != nil {
		t.Errorf("%v: %s", err, &stderr)
	}
}

// Processes that a successor starts do not inherit its descriptors.
func TestDescriptorsAreNotInherited(t *testing.T) {
	set := inherit(t)
	listen(t, set, "a", "tcp", "127.0.0.1:0")
	var out strings.Builder
	cmd := command(t, "spawns")
	cmd.Stdout = &out
	if err := set.Start(t.Context(), cmd); !errors.Is(err, handover.ErrNotReady) || out.String() != "done\n" {
		t.Errorf("%v, %q", err, &out)
	}
}

func TestAddFails(t *testing.T) {
	set := inherit(t)
	l := listen(t, set, "good", "tcp", "127.0.0.1:0")
	for _, name := range []string{"", "a:b", "a b", "ü", strings.Repeat("a", 256)} {
		if err := set.Add(name, l); err == nil {
			t.Errorf("Add of the name %q succeeded", name)
		}
	}
	if err := set.Add("a", opaque{}); err == nil || !strings.Contains(err.Error(), "handover_test.opaque") {
		t.Errorf("Add of another type = %v", err)
	}
	if err := set.Add("a", nil); err == nil {
		t.Error("Add of nil succeeded")
	}
	if err := set.Add("a", struct{ net.Listener }{l}); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := set.Start(t.Context(), command(t, "dies")); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), `"good"`) {
		t.Errorf("Start with a closed listener = %v", err)
	}
}

type opaque struct{}

func (opaque) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (opaque) Close() error              { return nil }
func (opaque) Addr() net.Addr            { return &net.TCPAddr{} }
