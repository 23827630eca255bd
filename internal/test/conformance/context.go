package conformance

import (
	"context"
	"errors"
)

// C9: waiting with a context.
var contextCases = map[string]func(*env){
	"C9/CancelLosesNothing": cancelLosesNothing,
}

var errCause = errors.New("the cause")

func (e *env) waitContext(ctx context.Context, p *port) <-chan result {
	return e.start(func(buf []note) (int, error) { return p.Wait(ctx, buf) }, 1)
}

// cancelLosesNothing cancels while an event arrives: either the call has it, or the next one.
func cancelLosesNothing(e *env) {
	p := e.port()
	s, peer := e.unix()
	for i := range 300 {
		e.do(p, enable(s, "k", in, level|oneShot))
		ctx, cancel := context.WithCancelCause(e.Context())
		w := e.waitContext(ctx, p)
		if i%2 == 0 {
			e.parked(p, 1)
		}
		sent := async(func() error {
			_, err := peer.Send([]byte("x"))
			return err
		})
		posted := i%3 == 0
		if posted {
			p.Post("k", 1)
		}
		cancel(errCause)
		r := e.get(w)
		e.end(sent, "send")
		left := 1
		if posted {
			left++
		}
		if r.err == nil {
			left -= len(r.notes)
		} else {
			e.wantErr(r.err, errCause)
		}
		for ; left > 0; left-- {
			if n := e.next(p); n.Key != "k" {
				e.Fatalf("notification %v", n)
			}
		}
		e.drain(s)
	}
}
