package port

// What tests of other packages' ports, which need the public API, see of this package.

const (
	Asked    = asked
	WEnabled = wEnabled
	WRecheck = wRecheck
)

// Enqueue queues a post and wakes no waiter.
func (p *Port) Enqueue() { p.typed.Enqueue(Packet{Rec: p.typed.NewRecord(nil), Kind: Posted}) }

var SameEpoch = sameEpoch
