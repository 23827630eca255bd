package facts

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

var errNone = errors.New("nothing is reported")

const (
	level   = sn.TriggerLevel
	edge    = sn.TriggerEdge
	oneShot = sn.TriggerOneShot
	persist = sn.TriggerPersistent
)

// questions are the rows about registrations. The rows about the state of a socket are situations.
var questions = []row{
	ask("FIN, filter IN alone", func(c *scope, a api) string { return ended(c, a, sn.EventIn) }),
	ask("FIN, filter HANGUP alone", func(c *scope, a api) string { return ended(c, a, sn.EventHangup) }),
	ask("FIN, filter none", func(c *scope, a api) string { return ended(c, a, sn.EventNone) }),
	ask("edge, ready when enabled", func(c *scope, a api) string {
		s, peer := c.tcp()
		c.deliver(peer, s, "x")
		return list(a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, edge|persist), reported(a))
	}),
	ask("edge, more arrives, undrained", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, edge|persist)
		c.deliver(peer, s, "x")
		reported(a)
		c.deliver(peer, s, "y")
		return list(failed, reported(a))
	}),
	ask("edge, drained, more arrives", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, edge|persist)
		c.deliver(peer, s, "x")
		reported(a)
		c.drain(s)
		c.deliver(peer, s, "y")
		return list(failed, reported(a))
	}),
	ask("one-shot level enabled again, undrained", func(c *scope, a api) string {
		s, peer := c.tcp()
		c.deliver(peer, s, "x")
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		reported(a)
		return list(failed, a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot), reported(a))
	}),
	ask("DISABLE", func(c *scope, a api) string {
		s, _ := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|persist)
		return list(failed, "packet: "+list(a.do(sn.OpDisable, s.Handle(), 1, 0, 0), reported(a)))
	}),
	ask("ENABLE right after DISABLE, data there", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		failed = list(failed, a.do(sn.OpDisable, s.Handle(), 1, 0, 0))
		c.deliver(peer, s, "x")
		return list(failed, a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot), reported(a))
	}),
	ask("REMOVE after a one-shot has fired", func(c *scope, a api) string {
		s, peer := c.tcp()
		c.deliver(peer, s, "x")
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		reported(a)
		return list(failed, a.do(sn.OpRemove, s.Handle(), 1, 0, 0), reported(a))
	}),
	ask("REMOVE with a notification queued", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		c.deliver(peer, s, "x")
		time.Sleep(soon)
		failed = list(failed, a.do(sn.OpRemove, s.Handle(), 1, 0, 0))
		return list(failed, reported(a), reported(a))
	}),
	ask("ENABLE right after REMOVE, another key", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := list(a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot), a.do(sn.OpRemove, s.Handle(), 1, 0, 0))
		c.deliver(peer, s, "x")
		return list(failed, a.do(sn.OpEnable, s.Handle(), 2, sn.EventIn, level|oneShot), keys(a))
	}),
	ask("ENABLE with another key", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		failed = list(failed, a.do(sn.OpEnable, s.Handle(), 2, sn.EventIn, level|oneShot))
		c.deliver(peer, s, "x")
		return list(failed, keys(a))
	}),
	refusal("REMOVE, not registered", sn.OpRemove, 0),
	refusal("DISABLE, not registered", sn.OpDisable, 0),
	refusal("ENABLE, LEVEL without ONESHOT or PERSISTENT", sn.OpEnable, level),
	refusal("ENABLE, ONESHOT without LEVEL or EDGE", sn.OpEnable, oneShot),
	refusal("ENABLE, LEVEL and EDGE", sn.OpEnable, level|edge|oneShot),
	refusal("ENABLE, ONESHOT and PERSISTENT", sn.OpEnable, level|persist|oneShot),
	refusal("ENABLE and REMOVE in one entry", sn.OpEnable|sn.OpRemove, level|oneShot),
	{name: "ENABLE on a second port", api: func(open func() (api, error)) (string, error) {
		return with(open, func(c *scope, a api) string {
			b, err := open()
			c.check("second port", err)
			defer b.close()
			s, _ := c.tcp()
			return list(a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|persist),
				or(b.do(sn.OpEnable, s.Handle(), 2, sn.EventIn, level|persist), "taken"))
		})
	}},
	ask("closed with a notification queued", func(c *scope, a api) string {
		s, peer := c.tcp()
		failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot)
		c.deliver(peer, s, "x")
		time.Sleep(soon)
		c.check("close", s.Close())
		return list(failed, keys(a))
	}),
	ask("a duplicate of a registered socket, another key", func(c *scope, a api) string {
		s, peer := c.tcp()
		d, err := duplicate(s.Handle())
		c.check("duplicate", err)
		c.opened = append(c.opened, d)
		failed := list(a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, level|oneShot), a.do(sn.OpEnable, d.handle(), 2, sn.EventIn, level|oneShot))
		c.deliver(peer, s, "x")
		return list(failed, keys(a))
	}),
	ask("handle of a net.Conn", func(c *scope, a api) string {
		conn, peer := dialled(c)
		h := handleOf(c, conn)
		failed := a.do(sn.OpEnable, h, 1, sn.EventIn, level|oneShot)
		_, err := peer.Write([]byte("x"))
		c.check("write", err)
		return list(failed, keys(a))
	}),
	ask("handle of a net.Conn's File", func(c *scope, a api) string {
		conn, peer := dialled(c)
		f, err := conn.File()
		if err != nil {
			return "no File: " + errors.Unwrap(err).Error()
		}
		c.opened = append(c.opened, f)
		h := handleOf(c, f)
		failed := a.do(sn.OpEnable, h, 1, sn.EventIn, level|oneShot)
		_, err = peer.Write([]byte("x"))
		c.check("write", err)
		return list(failed, keys(a))
	}),
	ask("two waiters, one arrival", func(c *scope, a api) string {
		var all []string
		for _, t := range []sn.Trigger{level | persist, level | oneShot, edge | persist} {
			s, peer := c.tcp()
			failed := a.do(sn.OpEnable, s.Handle(), 1, sn.EventIn, t)
			var got atomic.Int32
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, _, ok := a.next(patient); ok {
						got.Add(1)
					}
				})
			}
			c.deliver(peer, s, "x")
			wg.Wait()
			all = append(all, failed, fmt.Sprintf("%v: %d", t, got.Load()))
			a.do(sn.OpRemove, s.Handle(), 1, 0, 0)
			keys(a)
		}
		return list(all...)
	}),
	ask("a timeout of 20 ms", func(c *scope, a api) string {
		const asked = 20 * time.Millisecond
		for range 10 {
			begin := time.Now()
			a.next(asked)
			if time.Since(begin) < asked {
				return "early"
			}
		}
		return "never early"
	}),
	ask("many registrations in one call", func(c *scope, a api) string {
		many := 100
		if runtime.GOOS == "windows" {
			many = 1000 // Windows does not limit descriptors
		}
		var handles []uintptr
		for range many {
			handles = append(handles, c.fresh(sock.UDP4).Handle())
		}
		return fmt.Sprintf("%d %s", many, a.many(handles))
	}),
}

// with opens an api and calls f with it.
func with(open func() (api, error), f func(c *scope, a api) string) (string, error) {
	a, err := open()
	if err != nil {
		return "", err
	}
	defer a.close()
	return run(func(c *scope) string { return f(c, a) })
}

func ask(name string, f func(c *scope, a api) string) row {
	return row{name: name, api: func(open func() (api, error)) (string, error) { return with(open, f) }}
}

// refusal returns a row about an operation on a socket that is not registered.
func refusal(name string, op sn.Op, t sn.Trigger) row {
	return ask(name, func(c *scope, a api) string {
		s, _ := c.tcp()
		return or(a.do(op, s.Handle(), 1, sn.EventIn, t), "taken")
	})
}

func or(failed, taken string) string {
	if failed != "" {
		return failed
	}
	return taken
}

// reported returns the events of the next notification.
func reported(a api) string {
	_, e, _ := a.next(patient)
	return names(e)
}

// keys returns all notifications that come, with their keys.
func keys(a api) string {
	var all []string
	for {
		k, e, ok := a.next(patient)
		if !ok {
			break
		}
		all = append(all, fmt.Sprintf("key %d: %s", k, names(e)))
	}
	slices.Sort(all) // the order of two sockets is unspecified
	if all == nil {
		return nothing
	}
	return list(all...)
}

func ended(c *scope, a api, filter sn.Events) string {
	s, peer := c.tcp()
	failed := a.do(sn.OpEnable, s.Handle(), 1, filter, level|oneShot)
	c.shut(peer, sock.ShutWrite)
	return list(failed, reported(a))
}

func dialled(c *scope) (conn *net.TCPConn, peer net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.check("listen", err)
	defer l.Close()
	peer, err = net.Dial("tcp", l.Addr().String())
	c.check("dial", err)
	c.opened = append(c.opened, peer)
	got, err := l.Accept()
	c.check("accept", err)
	c.opened = append(c.opened, got)
	return got.(*net.TCPConn), peer
}
