package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A network is that of three members, each in a network namespace of its own. What they send to each
// other passes through this process, by a TUN device in each namespace, and is cut, delayed, dropped
// and seen here. Clients reach a member by a veth that nothing is done to.
type network struct {
	t      *testing.T
	spaces []*space
	seen   func(packet []byte) // if not nil, called for each that is sent
	moving sync.WaitGroup

	mu   sync.Mutex
	ways [3][3]way // from a member to another

	passed, dropped atomic.Int64 // packets
}

// A space is a network namespace.
type space struct {
	name  string
	tun   *os.File
	inner string // its address among the members
	outer string // that for clients
}

// A way is what happens to the packets that a member sends to another.
type way struct {
	cut   bool
	delay time.Duration // at most, and at least half of it; packets may overtake each other
	loss  float64
}

// newNetwork makes a network, or skips the test where that is not possible.
func newNetwork(t *testing.T, seen func(packet []byte)) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and TUN devices need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("network namespaces are made with the command ip: %v", err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("this system has no TUN devices: %v", err)
	}
	n := &network{t: t, seen: seen}
	for i := range 3 {
		s := &space{name: fmt.Sprintf("push%d.%d", os.Getpid(), i), inner: fmt.Sprintf("198.18.0.%d", i+1),
			outer: fmt.Sprintf("198.19.%d.2", i)}
		host := fmt.Sprintf("p%d.%d", os.Getpid(), i)
		if err := ip("netns add " + s.name); err != nil {
			t.Skipf("this process may make no network namespace: %v", err)
		}
		t.Cleanup(func() { must(t, ip("netns del "+s.name)) })
		in := "-n " + s.name + " "
		for _, line := range []string{
			in + "link set lo up",
			in + "tuntap add dev members mode tun",
			in + "addr add " + s.inner + "/24 dev members",
			in + "link set members up",
			"link add " + host + " type veth peer name clients netns " + s.name,
			fmt.Sprintf("addr add 198.19.%d.1/30 dev %s", i, host),
			"link set " + host + " up",
			in + "addr add " + s.outer + "/30 dev clients",
			in + "link set clients up",
		} {
			must(t, ip(line))
		}
		t.Cleanup(func() { must(t, ip("link del "+host)) }) // at once, and not some time after the namespace
		must(t, s.inside(s.open))
		n.spaces = append(n.spaces, s)
	}
	for i, s := range n.spaces {
		n.moving.Go(func() { n.carry(i, s) })
	}
	t.Cleanup(func() {
		for _, s := range n.spaces {
			s.tun.Close()
		}
		n.moving.Wait()
	})
	return n
}

// ip runs the command ip.
func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// inside calls a function on a thread that is in the namespace.
func (s *space) inside(f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it, so that the thread ends with the goroutine
		fd, err := unix.Open("/run/netns/"+s.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(fd, unix.CLONE_NEWNET), unix.Close(fd))
		}
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	return <-failed
}

// open opens the TUN device of the namespace in which the calling thread is.
func (s *space) open() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq("members")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	s.tun = os.NewFile(uintptr(fd), s.name)
	return nil
}

// carry moves the packets of a member, until its device is closed.
func (n *network) carry(from int, s *space) {
	b := make([]byte, 64<<10)
	for {
		size, err := s.tun.Read(b)
		if err != nil {
			return
		}
		n.move(from, b[:size])
	}
}

// move moves a packet of IPv4 between members, if it is one.
func (n *network) move(from int, packet []byte) {
	const addressAt = 16 // of the receiver, in the header
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return
	}
	to := int(packet[addressAt+3]) - 1
	if to < 0 || to >= len(n.spaces) || to == from {
		return
	}
	if n.seen != nil {
		n.seen(packet)
	}
	n.mu.Lock()
	w := n.ways[from][to]
	n.mu.Unlock()
	if w.cut || rand.Float64() < w.loss {
		n.dropped.Add(1)
		return
	}
	n.passed.Add(1)
	if w.delay == 0 {
		n.spaces[to].tun.Write(packet)
		return
	}
	packet = append([]byte(nil), packet...)
	time.AfterFunc(w.delay/2+rand.N(w.delay/2), func() { n.spaces[to].tun.Write(packet) })
}

// set changes the ways between two members, in one direction or both.
func (n *network) set(from, to int, both bool, w way) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ways[from][to] = w
	if both {
		n.ways[to][from] = w
	}
}

// isolate cuts a member off from all others.
func (n *network) isolate(i int) {
	for j := range n.spaces {
		n.set(i, j, true, way{cut: true})
	}
}

// all changes all ways.
func (n *network) all(w way) {
	for i := range n.spaces {
		for j := range n.spaces {
			n.set(i, j, false, w)
		}
	}
}
