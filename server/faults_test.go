package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// faulty is a real backend whose calls a test makes fail. Either function may be nil, and may return nil.
type faulty struct {
	backend.Poller
	park   func() error
	change func(c *backend.Change) error
}

func (f *faulty) Park(until time.Time, look func() bool) error {
	if f.park != nil {
		if err := f.park(); err != nil {
			return err
		}
	}
	return f.Poller.Park(until, look)
}

func (f *faulty) Poll(changes []backend.Change, ready []backend.Ready) int {
	if f.change == nil {
		return f.Poller.Poll(changes, ready)
	}
	for i := range changes {
		if err := f.change(&changes[i]); err != nil {
			changes[i].Status, changes[i].Err = backend.Refused, err
		} else {
			f.Poller.Poll(changes[i:i+1], nil)
		}
	}
	return f.Poller.Poll(nil, ready)
}

// on is the option that makes a port on the backend.
func (f faulty) on(name string) socknotify.Option {
	return func(o *system.Options) {
		r, _ := system.Find(name)
		o.Backend = &system.Backend{Name: name, Open: func() (backend.Poller, error) {
			k, err := r.Open()
			return &faulty{k, f.park, f.change}, err
		}}
	}
}

// eachFault runs a test for each name and each error.
func eachFault(t *testing.T, f func(t *testing.T, name string, fault error)) {
	backendtest.Each(t, func(t *testing.T, name string) {
		for _, fault := range []error{syscall.EIO, syscall.EPERM, syscall.EINTR} {
			t.Run(fmt.Sprint(fault), func(t *testing.T) { f(t, name, fault) })
		}
	})
}

// A server whose waits fail, some or all of them, still serves, logs it, and shuts down.
func TestWaitFails(t *testing.T) {
	eachFault(t, func(t *testing.T, name string, fault error) {
		for _, every := range []uint64{2, 1} { // of how many fails one
			t.Run(fmt.Sprint(every), func(t *testing.T) {
				var waits atomic.Uint64
				var log logged
				s := &srv{Handler: &handler{t: t}, Workers: 2, Logger: log.logger()}
				server.Faulty(s, time.Hour, faulty{park: func() error {
					if waits.Add(1)%every == 0 {
						return fault
					}
					return nil
				}}.on(name))
				addr := start(t, s)
				for range 5 {
					c := dial(t, addr)
					for range 3 {
						echoes(t, c, "hello")
					}
					c.Close()
				}
				// A wait that fails when a request has just arrived returns that request and no error. So let there be times
				// without requests, longer and longer ones.
				c := dial(t, addr)
				pause := time.Millisecond
				wait(t, func() bool {
					echoes(t, c, "hello")
					await.Pause(pause)
					pause *= 2
					return log.count("cannot wait") > 0
				})
				shutdown(t, s)
			})
		}
	})
}

// If all waits fail for long, Serve returns the error, connections are closed, and Shutdown returns.
func TestWaitFailsForGood(t *testing.T) {
	eachFault(t, func(t *testing.T, name string, fault error) {
		var broken atomic.Bool
		var log logged
		h := &handler{t: t}
		s := &srv{Handler: h, Workers: 2, Logger: log.logger()}
		server.Faulty(s, 10*time.Millisecond, faulty{park: func() error {
			if broken.Load() {
				return fault
			}
			return nil
		}}.on(name))
		served := make(chan error)
		var clients []net.Conn
		for range 2 {
			l := listen(t)
			go func() { served <- s.Serve(l) }()
			c := dial(t, l.Addr().String())
			echoes(t, c, "hello")
			clients = append(clients, c)
		}
		broken.Store(true)
		pause := 10 * time.Millisecond
		for ended := 0; ended < len(clients); {
			select {
			case err := <-served:
				if ended++; !errors.Is(err, fault) {
					t.Errorf("Serve = %v", err)
				}
			default:
				for _, c := range clients {
					c.Write([]byte("x")) // has workers wait once more, in the end the one that waited before
				}
				await.Pause(pause) // a request ends the series of failures, so they come less and less often
				pause *= 2
			}
		}
		for i, c := range clients {
			if err := h.cause(i + 1); !errors.Is(err, fault) {
				t.Errorf("cause %v", err)
			}
			io.Copy(io.Discard, c)
		}
		shutdown(t, s)
		balanced(t, h)
		if n := log.count("closing the server"); n != 1 {
			t.Errorf("it says %d times that it ends", n)
		}
	})
}

// If the system refuses to enable a connection, only that connection is closed.
func TestChangesFail(t *testing.T) {
	eachFault(t, func(t *testing.T, name string, fault error) {
		var changes atomic.Uint64
		var off atomic.Bool
		s := &srv{Handler: &handler{t: t}, Workers: 2}
		server.Faulty(s, 0, faulty{change: func(c *backend.Change) error {
			// On poll a connection makes three changes. With each third one refused, those of a kind were refused for every
			// connection, and a refused poll of a level is repeated after a quarter of a second.
			if !off.Load() && changes.Add(1)%5 == 0 {
				return fault
			}
			return nil
		}}.on(name))
		addr := start(t, s)
		answered := 0
		for range 100 {
			c := dial(t, addr)
			send(t, c, "hello")
			if _, err := io.ReadFull(c, make([]byte, 5)); err == nil {
				answered++
			}
			c.Close()
		}
		if answered == 0 {
			t.Error("no request is answered")
		}
		off.Store(true)
		c := dial(t, addr)
		echoes(t, c, "hello")
		off.Store(false)
		shutdown(t, s)
	})
}

// Removals that the system refuses do not delay Shutdown.
func TestRemovalsFail(t *testing.T) {
	eachFault(t, func(t *testing.T, name string, fault error) {
		s := &srv{Handler: &handler{t: t}, Workers: 2}
		server.Faulty(s, 0, faulty{change: func(c *backend.Change) error {
			if c.Action == backend.Delete {
				return fault
			}
			return nil
		}}.on(name))
		addr := start(t, s)
		for range 10 {
			c := dial(t, addr)
			echoes(t, c, "hello")
		}
		shutdown(t, s)
	})
}

// A PacketServer whose waits fail still serves, logs it, and shuts down.
func TestPacketWaitFails(t *testing.T) {
	eachFault(t, func(t *testing.T, name string, fault error) {
		var calls atomic.Uint64
		often := func() error {
			if calls.Add(1)%2 == 0 {
				return fault
			}
			return nil
		}
		for what, f := range map[string]faulty{
			"wait":  {park: often},
			"waits": {park: func() error { return fault }},
			"changes": {change: func(c *backend.Change) error {
				if c.Action == backend.Set {
					return often()
				}
				return nil
			}},
		} {
			t.Run(what, func(t *testing.T) {
				s := &server.PacketServer{Workers: 2, Handler: echoPackets}
				server.FaultyPackets(s, time.Hour, f.on(name))
				c := packets(t, s)
				for range 10 {
					echoes(t, c, "hello")
				}
			})
		}
	})
}

func TestPacketWaitFailsForGood(t *testing.T) {
	t.Parallel() // it waits
	eachFault(t, func(t *testing.T, name string, fault error) {
		for what, f := range map[string]faulty{
			"waits": {park: func() error { return fault }},
			"changes": {change: func(c *backend.Change) error {
				if c.Action == backend.Set {
					return fault
				}
				return nil
			}},
		} {
			t.Run(what, func(t *testing.T) {
				var log logged
				s := &server.PacketServer{
					Workers: 2, Logger: log.logger(),
					Handler: echoPackets,
				}
				server.FaultyPackets(s, 10*time.Millisecond, f.on(name))
				pc := listenPacket(t)
				c := dialPacket(t, pc.LocalAddr())
				send(t, c, "hello")
				if err := s.Serve(pc); !errors.Is(err, fault) {
					t.Errorf("Serve = %v", err)
				}
				if log.count("cannot wait") == 0 {
					t.Error("it says nothing")
				}
				shutdownPackets(t, s)
			})
		}
	})
}
