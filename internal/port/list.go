package port

import "time"

// An Info describes one registration.
type Info struct {
	Handle        Socket
	Record        *Record
	Filter        Events
	Trigger       Trigger
	State         state
	Pending       bool
	Id            uint64 // 0 if the port is not observed
	Notifications uint64
	Last          Events
	LastTime      int64 // Unix milliseconds; 0 if there was no notification
	Since         int64 // Unix milliseconds; 0 if it is older than the observation
}

// A state is the state of a registration. Package debug documents the values.
type state uint8

const (
	StateEnabled state = iota
	StateFired
	StateMuted
	StateDisabled
	StateAccepting
	StatePaused
	StateStopped
	StateOverlapped
)

// List returns at most limit registrations whose handles are from or more, the handle at which the next page begins, and
// whether there may be more. observed is the time since which notifications are recorded, or zero.
func (p *Port) List(from Socket, limit int) (observed time.Time, infos []Info, next Socket, more, closed bool) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) { // the slots may be dropped
		return observed, nil, from, false, true
	}
	defer st.Leave(p.Core)
	o := p.Core.Observer.Load()
	if o != nil {
		observed = o.since
	}
	next = from
	if limit <= 0 {
		return observed, nil, next, false, false
	}
	pages := p.Table.all()
	for at := from; at/pageSize < Socket(len(pages)); {
		pg := pages[at/pageSize].Load()
		if pg == nil {
			at = (at/pageSize + 1) * pageSize
			continue
		}
		i, ok := pg[at%pageSize].info(o, uint32(at))
		at++
		if !ok {
			continue
		}
		infos = append(infos, i)
		next = at
		if len(infos) == limit {
			return observed, infos, next, true, false
		}
	}
	return observed, infos, next, false, false
}

// info describes the registration of a slot. What it reads besides the word belongs to the registration of the word if the
// epoch is the same before and after.
func (s *Slot) info(o *Observer, index uint32) (i Info, ok bool) {
	for {
		was := s.Word.Load()
		if was&WRegistered == 0 {
			return i, false
		}
		var rec *seen
		if o != nil {
			rec = o.of(index)
		}
		reg := s.Reg.Load()
		if is := s.Word.Load(); reg == nil || !SameEpoch(was, is) || (reg.Work != nil) != (was&wWorked != 0) {
			continue
		}
		i = Info{
			Handle: Socket(index), Record: reg, Filter: wordFilter(was), Trigger: wordTrigger(was),
			State: reg.State(was), Pending: was&WEnabled == 0 && was&wPending != 0,
		}
		if rec != nil {
			i.Id, i.Notifications, i.Since = rec.id, rec.count.Load(), rec.since
			if last := rec.last.Load(); last != 0 {
				i.Last, i.LastTime = Events(last&0xff), int64(last>>8)
			}
		}
		return i, true
	}
}

// State returns the state in a word. A word written by OpDisable is suppressed and not pending; one that notePending has
// suppressed was pending before.
func (r *Record) State(word uint64) state {
	enabled := word&WEnabled != 0
	switch {
	case word&wOverlapped != 0:
		return StateOverlapped
	case r.Work != nil && !enabled:
		return StateStopped
	case r.Work != nil && r.Work.Accept.Paused.Load():
		return StatePaused
	case r.Work != nil:
		return StateAccepting
	case enabled:
		return StateEnabled
	case word&wSuppressed != 0 && word&wPending == 0:
		return StateDisabled
	case word&wSuppressed != 0:
		return StateMuted
	default:
		return StateFired
	}
}
