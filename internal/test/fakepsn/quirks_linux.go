package fakepsn

import "math/rand/v2"

// Quirks are choices that the reference leaves open. The zero value is its plainest reading.
type Quirks struct {
	// A one-shot registration is disabled when its packet is queued. Otherwise it is disabled when the packet is
	// dequeued, and events coalesce until then.
	DisarmWhenQueued bool
	// A packet has the conditions that hold when it is dequeued, and is not delivered if none holds. Otherwise it
	// has the conditions that have held since it was queued, so a program that receives data before a packet
	// reports it gets that packet afterwards.
	Refresh bool
	// Enabling and disabling withdraw a packet that was not dequeued.
	EnableWithdraws, DisableWithdraws bool
	// A registration cannot be enabled while its packet was not dequeued ("must not be re-enabled until").
	StrictEnable bool
	// A packet that is queued when its registration is removed becomes the REMOVE packet, at its place in the queue.
	// Otherwise it comes before the REMOVE packet.
	RemoveMerges bool
	// The REMOVE packet is queued some time after the call.
	RemoveIsLate bool
	// The socket cannot be registered, with any port, until its REMOVE packet was dequeued.
	RemoveBlocks bool
	// Closing a socket withdraws its queued packet.
	CloseWithdraws bool
	// The registrations of a closed port remain, and their sockets cannot be registered with other ports.
	ClosedPortHolds bool
	// A handle that is no socket fails the whole call.
	BadHandleFailsCall bool
	// A call that found nothing returns ERROR_TIMEOUT. Otherwise WAIT_TIMEOUT.
	ErrorTimeout bool
	// The result codes for a registration that does not exist, for a socket that is registered with another
	// port, and for one that cannot be enabled yet. 0 means a plausible code.
	NotFound, OtherPort, Busy uint32

	// The end of a stream is IN too. Otherwise it is HANGUP alone, and is not reported without HANGUP in the
	// filter.
	EndIsIn bool
	// A reset is only ERR. Otherwise it is HANGUP too.
	ResetIsErr bool
}

// Seeded returns random Quirks, without those that only weaken the reports of a socket.
func Seeded(seed uint64) Quirks {
	r := rand.New(rand.NewPCG(seed, 20348))
	flip := func() bool { return r.IntN(2) == 0 }
	code := func() uint32 { return []uint32{5, 87, 170, 1168, 10022, 10048}[r.IntN(6)] }
	return Quirks{
		DisarmWhenQueued: flip(), Refresh: flip(), EnableWithdraws: flip(), DisableWithdraws: flip(), StrictEnable: flip(),
		RemoveMerges: flip(), RemoveIsLate: flip(), RemoveBlocks: flip(), CloseWithdraws: flip(),
		ClosedPortHolds: flip(), BadHandleFailsCall: flip(), ErrorTimeout: flip(),
		NotFound: code(), OtherPort: code(), Busy: code(), EndIsIn: flip(), ResetIsErr: flip(),
	}
}
