package fdstate

// The lowest bits of a generation.
const (
	shortUnreliable = 1 // a receive shorter than its buffer does not prove that the stream is drained
	persistent      = 2 // a condition holds that no receive or send can end
	generationOne   = 4
)

// Generation returns the current generation. It must be read before a call whose result is passed to Blocked.
func (fd *FD) Generation() uint64 { return fd.generation.Load() }

// ShortDrains reports whether a receive shorter than its buffer has drained a TCP stream. It has, unless urgent
// data, the end of the stream or an error may be the reason that the receive was short. Anything that arrives after
// the notification of this generation causes another notification.
func ShortDrains(generation uint64) bool { return generation&shortUnreliable == 0 }

// Blocked records that a call in a direction would have blocked. generation was read before the call: a call that began
// before the latest notification does not prove that the data of that notification was received.
func (fd *FD) Blocked(d Dir, generation uint64) {
	fd.blocked[d>>1].Store(generation + 1)
	if Dir(fd.flags.Load())&d != 0 {
		fd.reportBlocked(d)
	}
}

// MaybeBlocked is Blocked for a call that returned ErrWouldBlock although data may be left. It calls Owner.Blocked
// if the direction is suppressed, but does not record that the socket is drained.
func (fd *FD) MaybeBlocked(d Dir) {
	if Dir(fd.flags.Load())&d != 0 {
		fd.reportBlocked(d)
	}
}

func (fd *FD) reportBlocked(d Dir) {
	o := fd.owner.Load()
	if o == nil || Dir(fd.flags.And(^uint32(d)))&d == 0 {
		return
	}
	// The caller holds a reference, so the handle is valid.
	o.Blocked(fd.Handle(), d)
}

// Drained reports whether, since the latest notification, a call in each of the directions would have blocked. It
// returns false while a condition holds that no receive or send can end.
func (fd *FD) Drained(d Dir) bool {
	generation := fd.generation.Load()
	return generation&persistent == 0 &&
		(d&Recv == 0 || fd.blocked[0].Load() == generation+1) &&
		(d&Send == 0 || fd.blocked[1].Load() == generation+1)
}

// Advance begins a new generation, for a notification that the port is about to deliver. short reports that a short
// receive does not prove that the stream is drained, and persists that a condition holds that no receive or send
// can end.
//
// The port may find afterwards that another call has delivered an earlier notification instead. So the flags of the
// previous generations are kept in addition until Confirm. If reports may be delivered out of order, as for a
// persistent registration, the port never calls Confirm, and the flags are kept.
func (fd *FD) Advance(short, persists bool) (begun NewGeneration) {
	var flags uint64
	if short {
		flags |= shortUnreliable
	}
	if persists {
		flags |= persistent
	}
	for {
		generation := fd.generation.Load()
		next := generation + generationOne | flags
		if fd.generation.CompareAndSwap(generation, next) {
			return NewGeneration{next, next&^(generationOne-1) | flags}
		}
	}
}

// A NewGeneration is a generation that Advance has begun: its value before and after Confirm.
type NewGeneration struct{ provisional, confirmed uint64 }

// Confirm drops the flags of earlier generations, because the notification of n is the one that is delivered. It
// must be called before the notification is returned to the program.
func (fd *FD) Confirm(n NewGeneration) {
	if n.provisional != n.confirmed {
		fd.generation.CompareAndSwap(n.provisional, n.confirmed)
	}
}

// Suppressed records that the port suppresses reports for the directions. Owner.Blocked is called once when a call
// in one of them would block; the port then enables the reports again.
func (fd *FD) Suppressed(d Dir) { fd.flags.Or(uint32(d)) }
