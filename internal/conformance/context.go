package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/socknotify/socknotify"
)

// C9: waiting with a context.
var contextCases = map[string]func(*env){
	"C9/Deadline":           deadline,
	"C9/DoneAlready":        doneAlready,
	"C9/RegistrationsStay":  registrationsStay,
	"C9/CancelLosesNothing": cancelLosesNothing,
	"C9/AllEnds":            allEnds,
}

var errCause = errors.New("the cause")

func (e *env) waitContext(ctx context.Context, p *port) <-chan result {
	return e.start(func(buf []note) (int, error) { return p.Wait(ctx, buf) }, 1)
}

func deadline(e *env) {
	p := e.port()
	const timeout = 5 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithTimeout(e.Context(), timeout)
	defer cancel()
	r := e.get(e.waitContext(ctx, p))
	e.wantErr(r.err, context.DeadlineExceeded)
	if took := time.Since(begin); took < timeout {
		e.Errorf("ended after %v, before its deadline", took)
	}
}

func doneAlready(e *env) {
	p := e.port()
	s, _ := e.unix()
	p.Post("k", 1)
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(errCause)
	regs := []reg{enable(s, "s", in, level)}
	n, err := p.ProcessContext(ctx, regs, make([]note, 1))
	if n != 0 || regs[0].Result != nil {
		e.Errorf("ProcessContext = %d, Result %v", n, regs[0].Result)
	}
	e.wantErr(err, errCause)
	e.do(p, disable(s)) // it was registered
	if n := e.next(p); n.Data != 1 {
		e.Errorf("the post was lost: %v", n)
	}
}

func registrationsStay(e *env) {
	p := e.port()
	s, peer := e.unix()
	ctx, cancel := context.WithCancelCause(e.Context())
	w := e.start(func(buf []note) (int, error) {
		return p.ProcessContext(ctx, []reg{enable(s, "k", in, level)}, buf)
	}, 1)
	e.parked(p, 1)
	cancel(errCause)
	e.wantErr(e.get(w).err, errCause)
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
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

func allEnds(e *env) {
	p := e.port()
	for i := range uintptr(3) {
		p.Post("k", i)
	}
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	var got uintptr
	for n := range p.All(ctx) {
		if n.Data != got {
			e.Errorf("post %d in place of %d", n.Data, got)
		}
		if got++; got == 2 {
			break // what is not taken stays
		}
	}
	if n := e.next(p); n.Data != 2 {
		e.Errorf("post %d; want the one that was left", n.Data)
	}
	ended := async(func() error {
		for n := range p.All(ctx) {
			return errors.New("yields " + n.Events.String())
		}
		return nil
	})
	e.parked(p, 1)
	cancel()
	e.end(ended, "an iterator whose context is cancelled")
	if _, err := p.Process(nil, make([]note, 1), 0); !errors.Is(err, socknotify.ErrTimeout) {
		e.Errorf("Wait: %v", err)
	}
}
