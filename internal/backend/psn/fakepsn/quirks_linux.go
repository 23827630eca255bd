package fakepsn

import "math/rand/v2"

// Quirks are the choices that the reference leaves open. The zero value is the plainest reading.
type Quirks struct {
	// One shot: the registration is disabled when its packet is queued. Otherwise when it is dequeued, and
	// until then events coalesce.
	DisarmWhenQueued bool
	// A packet says what holds when it is dequeued, and is not delivered if that is nothing. Otherwise it says
	// what has held since it was queued. Without it a program that receives what it has not been told of is
	// told of it afterwards.
	Refresh bool
	// Enabling and disabling take back a packet that was not dequeued.
	EnableWithdraws, DisableWithdraws bool
	// A registration cannot be enabled while its packet was not dequeued ("must not be re-enabled until").
	StrictEnable bool
	// A packet that is queued when its registration is removed becomes the REMOVE packet, where it is.
	// Otherwise it comes before that.
	RemoveMerges bool
	// The REMOVE packet is queued some time after the call.
	RemoveIsLate bool
	// The socket cannot be registered, with any port, until its REMOVE packet was dequeued.
	RemoveBlocks bool
	// Closing a socket takes back the packet that is queued for it.
	CloseWithdraws bool
	// The registrations of a closed port live on, and keep their sockets from other ports.
	ClosedPortHolds bool
	// A handle that is no socket fails the whole call.
	BadHandleFailsCall bool
	// A call that found nothing returns ERROR_TIMEOUT. Otherwise WAIT_TIMEOUT.
	ErrorTimeout bool
	// Codes are the results for a registration that does not exist, for a socket that is registered with
	// another port, and for one that cannot be enabled yet. 0 is a plausible one.
	NotFound, OtherPort, Busy uint32

	// End of stream is IN too. Otherwise it is HANGUP alone, and nothing where that is not asked for.
	EndIsIn bool
	// A reset is only ERR, or only HANGUP. Otherwise both.
	ResetIsErr, ResetIsHangup bool
}

// Seeded chooses at random, but for what only weakens what is reported of a socket.
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
