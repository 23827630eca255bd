// Package port implements the contract, once, without the type of the keys: registering,
// delivering, rechecking, waiting, ownership, accepting and closing. Packages operation and
// observe, above it, carry out overlapped operations and look into a live port, through the
// interfaces Operations and Observer.
//
// A file uses those below it. A registration passes these, in this order:
//
//	register.go    an entry names its socket by a connection, a socket of package sock, or a handle
//	enable.go      the entry meets the slot of its handle; a new registration is created; an enable
//	               that makes no system call; what strict edges must not repeat
//	batch.go       changes on their way to the backend, and what follows from their outcome
//	ownership.go   which port a handle is registered with, and the end of a registration
//
// A notification passes these:
//
//	waiting.go     a call dequeues, and waits as leader or follower, or in code of its caller
//	helper.go      a goroutine carries out operations while no call does
//	harvest.go     a report becomes a notification
//	accepting.go   a listener's report becomes connections
//	operations.go  a report is for package operation
//	recheck.go     every second look at a condition that may persist
//
// Both stand on these:
//
//	port.go        a port from Init to Close; Core, the part of it that has no keys
//	observer.go    the handle of a registration, for package observe
//	call.go        one call: its working memory, from a pool, and the counts of calls
//	mask.go        what a descriptor reports: masks, events, directions
//	slot.go        the state word of a handle; the tables of slots and of connections
//	entry.go       what this package exchanges with the façade, operation and observe: entries,
//	               records, packets, and the interfaces
//	waiters.go     the calls that wait, and who is woken
//	helperstate.go when the helper runs
//	turnstile.go   a lock with a count
//	errors.go, events.go  errors and values of the public packages
package port
