package conn

// The state word of a connection has the bits of its life, its input and its output. They are in
// one word, so that a goroutine that sets a bit learns in the same operation whether the connection
// has an owner, and so that an owner gives it up in one swap with the bits that it has read.
//
// A word for each of the three groups would be easier to read, but many transitions use bits of two
// or three groups in one operation: release and queueEnable clear wOwned if the bits of input and
// output are as they were, ratesExpired clears wNoIn and wNoOut and returns wOwned, and Resume sets
// wResumed with wAgain. If each bit is moved to the group that it crosses with, the life has 25 of
// the 29 bits. With three words a request and its answer take 27 loads of a word instead of 11.
//
// Life: who has the connection, and how it ends. These bits are also the owner's orders.
//
//	bit         set by                                   cleared by
//	wOwned      who acquires it: a worker, reacquire     the owner, by a swap; never once it ends
//	wPosted     wake                                     the worker that dequeues the post
//	wHandshake  Init                                     the owner, after header and handshake
//	wPaused     Pause, a TLS handshake that computes     Resume, a TLS handshake that waits
//	wResumed    Resume, callLater, the end of a stream   the owner, which calls Data
//	wDue        the wheel                                the owner, which calls the timers
//	wGrace      Shutdown                                 the first answer, or the end of grace
//	wLast       the end of grace                         never
//	wHijacked   Hijack                                   Resume, end
//	wDetached   giveSocket                               Resume
//	wReleased   the owner of a hijacked connection       releaseHijacked, with wHijacked
//	wClosing    Close                                    never
//	wAborting   Abort, a failure, a timeout              never
//	wReset      Abort                                    never
//	wDead       finish                                   never
//
// The operations on it, of which each is one:
//
//	acquire          sets wOwned. The goroutine is the owner if the bit was clear, and if it was set
//	                 it does nothing more: the owner looks again before it releases.
//	set              sets other bits, and wakes a worker if wOwned was clear. An owner acts on the
//	                 bits, because its release fails if they are new.
//	wake             sets wPosted, and posts the connection if the bit was clear.
//	release          clears wOwned, if the word is the one that the owner has acted on.
//
// The transitions of several bits, each one swap, too:
//
//	callLater        wOwned                        → wResumed
//	attendHijacked   wOwned|wHijacked|wDetached    → and wReleased: no owner, and yet no other
//	end              wHijacked, or none            → wClosing, or wAborting and perhaps wReset
//	releaseHijacked  wOwned|wHijacked|wReleased    → wResumed|wAgain, or wAborting
//
// A hijack passes these combinations, in this order, and Resume or the end leads from each to none:
//
//	wHijacked                       bytes are queued, and the hijacker waits for the socket
//	wHijacked|wDetached             the hijacker has the socket; a worker still has the connection
//	wHijacked|wDetached|wReleased   no worker has the connection, and wOwned stays set
//
// The end of a connection passes these bits in this order, and may leave out the first two. None of
// them is cleared:
//
//	wClosing                        queued bytes are sent, and nothing is received
//	wAborting, wReset after Abort   nothing is sent any more
//	wDead                           the handler's Close is called
//
// Only the owner calls the handler, and it enables the registration when it releases the
// connection. A notification that finds wOwned set is dropped. Nothing is lost by that, because the
// owner enables a level registration: a condition that still holds is reported again. For the same
// reason an enable that is not needed does no harm. An enable may be overtaken by that of a later
// owner and so set an older filter. Therefore each owner compares the filter with the word again
// after enabling (see reacquire).
const (
	wOwned     = 1 << iota // a goroutine has the connection
	wPosted                // a post with the connection as key is in the queue
	wHandshake             // the header or TLS handshake is unfinished; the handler does not know it
	wPaused                // Data must not be called
	wResumed               // Data must be called, even if nothing has arrived
	wDue                   // a timer is due
	wGrace                 // Shutdown waits for the first request, and for the answer
	wLast                  // the stream ends with the bytes that have arrived
	wHijacked              // a net.Conn has the socket, or will have it when no bytes are queued
	wDetached              // the socket was given to a net.Conn
	wReleased              // hijacked, and the owner has released the connection
	wClosing               // close when no bytes are queued
	wAborting              // close now
	wReset                 // and send the peer a reset
	wDead                  // the handler's Close was called, or is being called
)

// Input. The owner changes these bits; ReadRate's is cleared by the wheel, and wBack is set by
// Resume.
//
//	bit         set by                                   cleared by
//	wEOF        a receive                                never
//	wReceived   a receive                                never
//	wNoIn       allow                                    ratesExpired
//	wMore       TLS                                      TLS
//	wInput      the first call of the input              endInput, dropInput
//	wAgain      endInput, Resume, a header               the owner, which calls Data
//	wBack       giveBack                                 the first call of the input
const (
	wEOF      = wDead << (iota + 1) // the end of the stream was received
	wReceived                       // the handler has received something
	wNoIn                           // ReadRate forbids to receive
	wMore                           // there are bytes to read that no notification will report
	wInput                          // extra has an input
	wAgain                          // Data must be called for what is in the input
	wBack                           // extra has bytes that belong at the begin of the input
)

// Output. These bits change with the connection's lock held, except wWritable, wGather, and
// wNoOut for a reader.
//
//	bit         set by                                   cleared by
//	wOut        queued, appendSource                     drain, with wFull
//	wFull       queued, appendSource                     drain
//	wWritable   WantWritable, a refused write            flush, before Writable
//	wShut       shutLocked                               never
//	wGather     beginCall                                endCall; sendHeld, if the call takes long
//	wHeld       hold                                     sendHeld, sendVec
//	wNoOut      a reader is about to be read, allow      the reader had something, goOn, ratesExpired
//
// wHeld and wOut exclude each other: what was held is sent or queued before anything else is.
const (
	wOut      = wBack << (iota + 1) // bytes are queued, or there is a source
	wFull                           // more than half of the queue is in use, or there is a source
	wWritable                       // Writable is to be called
	wShut                           // sending was shut down
	wGather                         // a handler's call runs, which sends when it returns
	wHeld                           // the queue has bytes of that call, which were not sent yet
	wNoOut                          // room is not waited for: a reader has nothing, or WriteRate forbids
)

const (
	wOver   = wClosing | wAborting | wHijacked | wDead
	wNoRead = wOver | wFull | wEOF | wPaused | wNoIn
	// a call of the input is the usual case if of these wInput alone is set
	wInputUse = wInput | wPaused | wBack
	// release is not the usual case if one of these is set
	wSpecial = wOver | wShut | wResumed | wMore | wLast | wAgain | wDue
)

// Word returns the state word, for tests.
func (c *Conn) Word() uint32 { return c.word.Load() }

// wake posts a connection that has no owner, so that a worker acquires it and acts on its word.
func (c *Conn) wake() {
	if c.word.Or(wPosted)&wPosted == 0 {
		s := c.shared()
		s.Ports[c.Shard].Post(c.Key(), 0)
	}
}

// set sets bits of the word. If the connection has an owner, that acts on them when it releases the
// connection; otherwise a worker is woken.
func (c *Conn) set(bits uint32) (was uint32) {
	was = c.word.Or(bits)
	if was&wOwned == 0 {
		c.wake()
	}
	return was
}

func (c *Conn) Pause() { c.word.Or(wPaused) }
