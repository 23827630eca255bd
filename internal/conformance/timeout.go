package conformance

import (
	"errors"
	"math"
	"net"
	"os"
	"time"

	"github.com/socknotify/socknotify"
)

// C4: how long a call waits.
var timeoutChecks = []check{
	both("C4", "ZeroPolls", zeroPolls),
	both("C4", "NeverEarly", neverEarly),
	both("C4", "NeverEarlyAmongOthers", neverEarlyAmongOthers),
	both("C4", "NeverEarlyUnderWakeups", neverEarlyUnderWakeups),
	both("C4", "NegativeWaitsForEver", negativeWaits),
	both("C4", "RegisteredDespiteTimeout", registeredDespiteTimeout),
	both("C4", "ErrorSpeaksGo", timeoutError),
}

func zeroPolls(e *env) {
	p := e.port()
	for range 10 {
		n, err := p.Process(nil, make([]note, 4), 0)
		if n != 0 {
			e.Fatalf("Wait = %d", n)
		}
		e.wantErr(err, socknotify.ErrTimeout)
	}
}

func (e *env) notEarly(r result, timeout time.Duration) {
	e.Helper()
	if len(r.notes) != 0 {
		e.Errorf("Wait = %v", r.notes)
	}
	e.wantErr(r.err, socknotify.ErrTimeout)
	if r.took < timeout {
		e.Errorf("waited %v, less than the %v asked for", r.took, timeout)
	}
}

func neverEarly(e *env) {
	p := e.port()
	for _, timeout := range []time.Duration{1, 999, time.Microsecond, 300 * time.Microsecond,
		time.Millisecond, 1500 * time.Microsecond, 2*time.Millisecond + 1, 17 * time.Millisecond} {
		for range 5 {
			e.notEarly(e.get(e.wait(p, 1, timeout)), timeout)
		}
	}
}

// neverEarlyAmongOthers waits beside calls that wait longer and shorter, so that every one of them
// comes to watch the kernel at some time.
func neverEarlyAmongOthers(e *env) {
	p := e.port()
	type wait struct {
		timeout time.Duration
		ch      <-chan result
	}
	var all []wait
	for i := range 40 {
		timeout := time.Duration(i*7%40+1) * time.Millisecond
		all = append(all, wait{timeout, e.wait(p, 1, timeout)})
	}
	for _, w := range all {
		e.notEarly(e.get(w.ch), w.timeout)
	}
}

// neverEarlyUnderWakeups makes the kernel report things that make no notification.
func neverEarlyUnderWakeups(e *env) {
	const timeout = 20 * time.Millisecond
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge), disable(s))
	other, _ := e.unix()
	first, second := e.wait(p, 1, timeout), e.wait(p, 1, timeout)
	for range 10 {
		e.send(peer, "x")
		e.do(p, enable(other, "other", in, level), remove(other))
		var removal [1]note
		p.Process(nil, removal[:], 0)
		e.do(p, enable(s, "k", socknotify.EventNone, edge), disable(s))
		time.Sleep(time.Millisecond)
	}
	for _, ch := range []<-chan result{first, second} {
		r := e.get(ch)
		if len(r.notes) == 0 { // it may have taken a removal
			e.notEarly(r, timeout)
		}
	}
}

func negativeWaits(e *env) {
	p := e.port()
	for _, timeout := range []time.Duration{-1, math.MinInt64, -time.Hour, math.MaxInt64, 200 * 365 * 24 * time.Hour} {
		w := e.wait(p, 1, timeout)
		e.parked(p, 1)
		e.still(w)
		p.Post("k", 0)
		if r := e.get(w); r.err != nil || len(r.notes) != 1 {
			e.Fatalf("Wait(%v) = %v, %v", timeout, r.notes, r.err)
		}
	}
}

func registeredDespiteTimeout(e *env) {
	p := e.port()
	s, peer := e.unix()
	for _, timeout := range []time.Duration{0, 2 * time.Millisecond} {
		regs := []reg{enable(s, "k", in, level|oneShot), remove(fd(1 << 20))}
		n, err := p.Process(regs, make([]note, 1), timeout)
		if n != 0 {
			e.Fatalf("Process = %d", n)
		}
		e.wantErr(err, socknotify.ErrTimeout)
		if regs[0].Result != nil {
			e.Fatalf("Result: %v", regs[0].Result)
		}
		e.wantErr(regs[1].Result, socknotify.ErrBadSocket)
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		e.drain(s)
	}
}

func timeoutError(e *env) {
	_, err := e.port().Process(nil, make([]note, 1), 0)
	e.wantErr(err, socknotify.ErrTimeout, os.ErrDeadlineExceeded)
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		e.Errorf("%v is no timeout to package net", err)
	}
}
