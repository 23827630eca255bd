package docs_test

import (
	"testing"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// kqueueLoop serves, and ends some time after it was told to by a post.
func kqueueLoop(port *sn.Port[*client]) error {
	var changes []sn.Registration[*client]
	events := make([]sn.Notification[*client], 64)
	for {
		n, err := port.Process(changes, events, -1)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if change.Result != nil { // EV_ERROR, which had its place among the events
				change.Key.free()
			}
		}
		changes = changes[:0]
		for _, ev := range events[:n] {
			c := ev.Key
			switch {
			case ev.Kind() == sn.KindPosted: // EVFILT_USER
				if err := reload(ev.Data); err != nil {
					return err
				}
				continue
			case c == nil: // the listener's
				s, err := ev.Accepted()
				if err != nil {
					continue
				}
				c = &client{socket: s}
			case ev.Events == sn.EventRemove:
				c.free()
				continue
			}
			change := sn.Enable(c.socket, c, sn.EventIn|sn.EventHangup, oneShot)
			if c.serve() != nil {
				change.Op = sn.OpRemove
			}
			changes = append(changes, change)
		}
	}
}

func wake(port *sn.Port[*client]) error {
	return port.Post(nil, 42)
}

// reload is what the post asks for; 42 is the only number that there is.
func reload(what uintptr) error {
	if what == 42 {
		return sn.ErrClosed
	}
	return sn.ErrInvalid
}

func TestFromKqueue(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		port, listener := open(t, sn.WithBackend(backend))
		if err := port.Accept(listener, nil, 16); err != nil {
			t.Fatal(err)
		}
		stop := ends(t, port, func() error { return kqueueLoop(port) })
		echoed(t, listener.LocalAddr().String())
		if err := wake(port); err != nil {
			t.Error(err)
		}
		stop()
	})
}
