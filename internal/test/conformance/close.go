package conformance

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/handles"
)

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
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		return slices.Contains(other, s)
	})
}
