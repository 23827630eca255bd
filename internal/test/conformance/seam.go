package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
)

const everything = backend.In | backend.Urgent | backend.Out | backend.PeerClosed

var statuses = [...]string{"done", "absent", "present", "bad", "refused"}

// watchSeam watches with a backend, without a port.
func watchSeam(b system.Backend) func(e *env, h uintptr) (*watcher, error) {
	return func(e *env, h uintptr) (*watcher, error) {
		k, err := b.Open()
		if err != nil {
			return nil, err
		}
		e.Cleanup(func() { k.Close() })
		token := uint64(0)
		change := func(a backend.Action, m backend.Mask) error {
			token++
			kind, _ := k.Describe(h) // if the handle is closed, the change fails
			c := []backend.Change{{
				Handle: h, Token: token, Action: a, Interest: m, Listens: kind == backend.Listener,
			}}
			if k.Poll(c, nil); c[0].Status != backend.Done {
				return errors.New(statuses[c[0].Status])
			}
			return nil
		}
		ready := make([]backend.Ready, 8)
		return &watcher{
			enable: func(first bool) error {
				if !first {
					return change(backend.Set, everything)
				}
				if err := change(backend.Add, everything); err != nil {
					return fmt.Errorf("add: %w", err)
				}
				return nil
			},
			// If reports suppress it (Edges is false), it enables the handle again for the conditions
			// that were not reported yet.
			next: func(before uint32) (uint32, bool) {
				all, any := backend.Mask(before), false
				n := k.Poll(nil, ready)
				for _, r := range ready[:n] {
					if r.Token != token {
						continue
					}
					all |= r.Mask
					any = true
					if !k.Edges() && all&backend.Err == 0 {
						change(backend.Set, everything&^all|all&backend.Dead)
					}
				}
				if n == 0 {
					k.Park(time.Now().Add(time.Millisecond), func() bool { return false })
				}
				return uint32(all), any
			},
			text: func(all uint32) string {
				var names []string
				for i, name := range []string{"in", "urgent", "out", "err", "dead", "peer-closed"} {
					if all&(1<<i) != 0 {
						names = append(names, name)
					}
				}
				return strings.Join(names, "|")
			},
		}, nil
	}
}
