package fdstate

// The lowest bits of a turn.
const (
	keepsOn  = 1 // something may be left where a stream was received short
	standing = 2 // a condition stands that no receive or send ends
	turnOne  = 4
)

// Turn is to be read before a call whose outcome goes to Blocked.
func (t *FD) Turn() uint64 { return t.turn.Load() }

// ShortBlocks reports whether a receive of a TCP stream that was short of its buffer has drained it.
// It has, unless urgent data, the end of the stream or an error may have cut it short; what came after
// the notification of this turn makes a report of its own.
func ShortBlocks(turn uint64) bool { return turn&keepsOn == 0 }

// Blocked records that a call in a direction would have blocked. The turn is from before the call: one
// that began before the latest notification says nothing about what that notification was for.
func (t *FD) Blocked(d Dir, turn uint64) {
	t.blocked[d>>1].Store(turn + 1)
	if Dir(t.silent.Load())&d != 0 {
		t.tellBlocked(d)
	}
}

// Doubtful is Blocked for a call whose answer may be another's: it lets the port go on, and vouches for
// nothing.
func (t *FD) Doubtful(d Dir) {
	if Dir(t.silent.Load())&d != 0 {
		t.tellBlocked(d)
	}
}

func (t *FD) tellBlocked(d Dir) {
	o := t.owner.Load()
	if o == nil || Dir(t.silent.And(^uint32(d)))&d == 0 {
		return
	}
	// The caller uses the socket, so the handle is its own.
	o.Blocked(t.Handle(), d)
}

// Drained reports whether a call in each of the directions would have blocked since the latest
// notification, and nothing stands.
func (t *FD) Drained(d Dir) bool {
	turn := t.turn.Load()
	return turn&standing == 0 &&
		(d&Recv == 0 || t.blocked[0].Load() == turn+1) &&
		(d&Send == 0 || t.blocked[1].Load() == turn+1)
}

// Notify begins a turn, for a notification that the port is about to deliver. Whether it does is settled
// only after: the port may find that others were quicker, and the notification in whose turn the socket is
// theirs. So what that one said about short receives is kept, until Notified. Where a report may be delivered after a
// later one, as those of a registration that goes on being enabled, it is kept for good.
func (t *FD) Notify(mayKeepOn, stands bool) (begun Notice) {
	var flags uint64
	if mayKeepOn {
		flags |= keepsOn
	}
	if stands {
		flags |= standing
	}
	for {
		turn := t.turn.Load()
		next := turn + turnOne | flags
		if t.turn.CompareAndSwap(turn, next) {
			return Notice{next, next&^(turnOne-1) | flags}
		}
	}
}

// A Notice is a turn that has begun: as it stands, and as it is once its notification is certain.
type Notice struct{ turn, certain uint64 }

// Notified says that the notification of a turn is the one that was delivered. Nobody can have it yet.
func (t *FD) Notified(n Notice) {
	if n.turn != n.certain {
		t.turn.CompareAndSwap(n.turn, n.certain)
	}
}

// Silenced asks for the owner's Blocked when a call in one of the directions would block: its kernel
// keeps silent until then.
func (t *FD) Silenced(d Dir) { t.silent.Or(uint32(d)) }
