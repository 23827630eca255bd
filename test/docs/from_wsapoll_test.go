package docs_test

import (
	"testing"
	"time"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

func pollLoop(port *sn.Port[*client], listener *sock.Socket) error {
	const always = sn.TriggerLevel | sn.TriggerPersistent
	if err := port.Accept(listener, nil, 16); err != nil {
		return err
	}
	ready := make([]sn.Notification[*client], 64)
	for {
		n, err := port.Process(nil, ready, time.Second)
		if err == sn.ErrTimeout {
			continue // once a second, as WSAPoll returned 0
		}
		if err != nil {
			return err
		}
		for _, nt := range ready[:n] {
			c := nt.Key
			switch {
			case c == nil: // the listener's
				s, err := nt.Accepted()
				if err != nil {
					continue
				}
				c = &client{socket: s}
				if do(port, sn.Enable(s, c, sn.EventIn, always)) != nil {
					c.free()
				}
			case nt.Events == sn.EventRemove:
				c.free()
			case c.serve() != nil:
				do(port, sn.Remove[*client](c.socket))
			}
		}
	}
}

func TestFromWSAPoll(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		port, listener := open(t, sn.WithBackend(backend))
		stop := ends(t, port, func() error { return pollLoop(port, listener) })
		echoed(t, listener.LocalAddr().String())
		stop()
	})
}
