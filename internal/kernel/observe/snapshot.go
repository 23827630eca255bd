package observe

import (
	"fmt"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// An Info describes one registration.
type Info struct {
	Handle        port.Socket
	Record        *port.Record
	Filter        port.Events
	Trigger       port.Trigger
	State         state
	Pending       bool
	ID            uint64 // 0 if the port is not observed
	Notifications uint64
	Last          port.Events
	LastTime      int64 // Unix milliseconds; 0 if there was no notification
	Since         int64 // Unix milliseconds; 0 if it is older than the observation
}

// A state is the state of a registration. Package debug documents the values.
type state uint8

const (
	stateEnabled state = iota
	stateFired
	stateSuppressed
	stateDisabled
	stateAccepting
	statePaused
	stateStopped
	stateOverlapped
)

// List returns at most limit registrations whose handles are from or more, the handle at which the
// next page begins, and whether there may be more. observed is the time since which notifications
// are recorded, or zero.
func List(p *port.Port, from port.Socket, limit int) (
	observed time.Time, infos []Info, next port.Socket, more, closed bool,
) {
	if !p.Core.Enter() { // the slots may be dropped
		return observed, nil, from, false, true
	}
	defer p.Core.Leave()
	r := recorderOf(p.Core)
	if r != nil {
		observed = r.since
	}
	next = from
	if limit <= 0 {
		return observed, nil, next, false, false
	}
	for s, at, ok := p.Table.From(from); ok; s, at, ok = p.Table.From(at + 1) {
		i, registered := info(s, at, r)
		if !registered {
			continue
		}
		infos = append(infos, i)
		next = at + 1
		if len(infos) == limit {
			return observed, infos, next, true, false
		}
	}
	return observed, infos, next, false, false
}

// info describes the registration of a slot. Its record is that of the registration, because the
// slot has the same epoch before and after.
func info(s *port.Slot, h port.Socket, r *recorder) (i Info, ok bool) {
	for {
		v, ok := s.View()
		if !ok {
			return i, false
		}
		i = Info{
			Handle: h, Record: v.Record, Filter: v.Filter, Trigger: v.Trigger,
			State: stateOf(v), Pending: !v.Enabled && v.Pending,
		}
		if r == nil {
			return i, true
		}
		seen := r.of(uint32(h))
		if !s.Same(v) {
			continue
		}
		i.ID, i.Notifications, i.Since = seen.id, seen.count.Load(), seen.since
		if last := seen.last.Load(); last != 0 {
			i.Last, i.LastTime = port.Events(last&0xff), int64(last>>8)
		}
		return i, true
	}
}

// stateOf returns the state of a registration. One that OpDisable has disabled is suppressed and
// not pending; one that the port has suppressed was pending before.
func stateOf(v port.View) state {
	work := v.Record.Work
	switch {
	case work != nil && work.Accept == nil:
		return stateOverlapped
	case work != nil && !v.Enabled:
		return stateStopped
	case work != nil && work.Accept.Paused.Load():
		return statePaused
	case work != nil:
		return stateAccepting
	case v.Enabled:
		return stateEnabled
	case v.Suppressed && !v.Pending:
		return stateDisabled
	case v.Suppressed:
		return stateSuppressed
	default:
		return stateFired
	}
}

// Addresses returns the addresses of a registration's socket. The error is ErrNotRegistered if h
// has another record, or none.
func Addresses(p *port.Port, h port.Socket, rec *port.Record) (names sock.Names, err error) {
	ended, err := p.WithHandle(h, rec, func(h port.Socket) (err error) {
		names, err = sock.NamesOf(h)
		return err
	})
	if ended {
		why := port.ErrNotRegistered
		if err != nil {
			why = fmt.Errorf("%w: %w", why, err)
		}
		err = fmt.Errorf("socknotify: addresses of socket %d: %w", h, why)
	}
	if err != nil {
		return sock.Names{}, err
	}
	return names, nil
}
