package conformance

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/handles"
)

// P4: Close, and ports that are not closed.
var closeCases = map[string]func(*env){
	"P4/WaitsForCallsInside":    closeWaitsForCalls,
	"P4/RacesWithEveryCall":     closeRaces,
	"P4/DroppedPort":            droppedPort,
	"P4/DroppedPortWithHistory": droppedPortWithHistory,
}

// A slowConn holds a call inside the port.
type slowConn struct {
	handle
	entered, leave chan struct{}
}

func (c *slowConn) SyscallConn() (syscall.RawConn, error) { return c, nil }
func (c *slowConn) Read(func(uintptr) bool) error         { return errors.ErrUnsupported }
func (c *slowConn) Write(func(uintptr) bool) error        { return errors.ErrUnsupported }

func (c *slowConn) Control(f func(uintptr)) error {
	close(c.entered)
	<-c.leave
	f(c.Handle())
	return nil
}

func closeWaitsForCalls(e *env) {
	before := handles.List()
	p := e.port()
	own := without(handles.List(), before)
	s, _ := e.unix()
	c := &slowConn{s, make(chan struct{}), make(chan struct{})}
	call := async(func() error {
		regs := []reg{{Conn: c, Key: "k", Filter: in, Op: socknotify.OpEnable, Trigger: level}}
		_, err := p.Process(regs, nil, 0)
		return err
	})
	<-c.entered
	closing := async(p.Close)
	e.until("Close has begun", func() bool { return p.Post(nil, 0) != nil })
	select {
	case <-closing:
		e.Errorf("Close returned while a call was inside the port")
	case <-time.After(pause()):
	}
	if lost := without(own, handles.List()); len(lost) != 0 {
		e.Errorf("the kernel's objects were closed under a call: %v", lost)
	}
	close(c.leave)
	e.end(call, "the call inside the port")
	e.end(closing, "Close")
	now := handles.List()
	if left := without(own, without(own, now)); len(left) != 0 {
		e.Errorf("left open by Close: %v", left)
	}
}

// without is list but for what is in other.
func without(list, other []string) []string {
	var rest []string
	for _, s := range list {
		if !slices.Contains(other, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

// weakKeys makes keys that only what use gives them to keeps reachable.
//
//go:noinline
func weakKeys(count int, use func(i int, k *key)) []weak.Pointer[key] {
	var all []weak.Pointer[key]
	for i := range count {
		k := &key{"weak"}
		use(i, k)
		all = append(all, weak.Make(k))
	}
	return all
}

// released waits until none of the keys is reachable.
func (e *env) released(what string, keys []weak.Pointer[key]) {
	e.Helper()
	for _, w := range keys {
		e.collected(what, func() bool { return w.Value() == nil })
	}
}

func closeRaces(e *env) {
	for range 50 {
		p := e.port()
		s, peer := e.unix()
		e.send(peer, "x")
		calls := []<-chan error{
			async(func() error { _, err := p.Process(nil, make([]note, 1), -1); return err }),
			async(func() error {
				_, err := p.Process([]reg{enable(s, "k", in, level|oneShot)}, make([]note, 1), -1)
				return err
			}),
			async(func() error { return p.Post("k", 0) }),
			async(func() error { _, err := p.Deregister(remove(s)); return err }),
			async(p.Close),
		}
		for _, ch := range calls {
			select {
			case err := <-ch:
				if err != nil && !errors.Is(err, socknotify.ErrClosed) && !errors.Is(err, socknotify.ErrNotRegistered) {
					e.Errorf("a call beside Close: %v", err)
				}
			case <-time.After(limit):
				e.Fatalf("a call beside Close does not end")
			}
		}
	}
}

// dropPorts makes ports and forgets them.
//
//go:noinline
func dropPorts(e *env, count int, use func(p *port, k *key)) []weak.Pointer[key] {
	return weakKeys(count, func(_ int, k *key) { use(e.factory(e.T), k) })
}

func (e *env) dropped(count int, use func(p *port, k *key)) {
	e.Helper()
	before := len(handles.List())
	keys := dropPorts(e, count, use)
	if len(handles.List()) <= before {
		e.Fatalf("ports that hold no descriptors show no leak")
	}
	e.collected("every descriptor of dropped ports", func() bool { return len(handles.List()) == before })
	e.released("a key of a dropped port", keys)
}

func droppedPort(e *env) {
	s, _ := e.unix()
	e.dropped(4, func(p *port, k *key) {
		p.Process([]reg{enable(s, k, in, level)}, nil, 0)
		p.Process([]reg{remove(s)}, nil, 0)
	})
}

func droppedPortWithHistory(e *env) {
	const ports = 4
	var sockets [ports][2]*socket
	for i := range sockets {
		sockets[i][0], sockets[i][1] = e.unix()
	}
	next := 0
	e.dropped(ports, func(p *port, k *key) {
		s, peer := sockets[next][0], sockets[next][1]
		next++
		e.send(peer, "x")
		e.do(p, enable(s, k, in, level))
		e.next(p)
		p.Post(k, 0)
		p.Process(nil, make([]note, 4), 0)
		e.drain(s)
		ctx, cancel := context.WithTimeout(e.Context(), time.Millisecond)
		defer cancel()
		p.Wait(ctx, make([]note, 1))
		p.Process(nil, make([]note, 1), time.Millisecond)
	})
}
