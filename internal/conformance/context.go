package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/socknotify/socknotify"
)

// C9: waiting with a context.
var contextChecks = []check{
	both("C9", "CancelTheOnlyWaiter", cancelOnly),
	both("C9", "CancelLeader", func(e *env) { cancelAmong(e, 0) }),
	both("C9", "CancelFollower", func(e *env) { cancelAmong(e, 2) }),
	both("C9", "CancelAll", cancelAll),
	both("C9", "Deadline", deadline),
	both("C9", "DoneAlready", doneAlready),
	both("C9", "RegistrationsStay", registrationsStay),
	both("C9", "CancelLosesNothing", cancelLosesNothing),
	both("C9", "AllEnds", allEnds),
}

var errCause = errors.New("the cause")

func (e *env) waitContext(ctx context.Context, p *port) <-chan result {
	return e.start(func(buf []note) (int, error) { return p.Wait(ctx, buf) }, 1)
}

func cancelOnly(e *env) {
	p := e.port()
	ctx, cancel := context.WithCancelCause(e.Context())
	w := e.waitContext(ctx, p)
	e.parked(p, 1)
	cancel(errCause)
	r := e.get(w)
	if len(r.notes) != 0 {
		e.Errorf("notes %v", r.notes)
	}
	e.wantErr(r.err, errCause)
}

// cancelAmong cancels one of four waiters. The others must still be served.
func cancelAmong(e *env, which int) {
	for range 20 {
		p := e.port()
		ctx, cancel := context.WithCancelCause(e.Context())
		var all []<-chan result
		for i := range 4 {
			if i == which {
				all = append(all, e.waitContext(ctx, p))
			} else {
				all = append(all, e.wait(p, 1, -1))
			}
			e.parked(p, i+1)
		}
		cancel(errCause)
		e.wantErr(e.get(all[which]).err, errCause)
		for i := range 3 {
			s, peer := e.unix()
			e.do(p, enable(s, i, in, level|oneShot))
			e.send(peer, "x")
		}
		for i, ch := range all {
			if i == which {
				continue
			}
			if r := e.get(ch); r.err != nil || len(r.notes) != 1 {
				e.Fatalf("Wait = %v, %v", r.notes, r.err)
			}
		}
	}
}

func cancelAll(e *env) {
	p := e.port()
	ctx, cancel := context.WithCancelCause(e.Context())
	var all []<-chan result
	for range 16 {
		all = append(all, e.waitContext(ctx, p))
	}
	e.parked(p, 16)
	cancel(errCause)
	for _, ch := range all {
		e.wantErr(e.get(ch).err, errCause)
	}
	e.parked(p, 0)
	p.Post("k", 1)
	if n := e.next(p); n.Data != 1 {
		e.Errorf("post %v", n)
	}
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
