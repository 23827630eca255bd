// Package conformance is the contract of package socknotify as a test suite: each numbered sentence
// of docs/contract.md has a group of cases that bears its number.
//
// This package's own test runs every backend of the system, and the fakes of package backendtest,
// with the backend and the sentence in one element of the name, as in
// TestConformance/epoll-G4/RemoveDisabled. Anything else that makes ports is tested by RunSentence.
//
//	go test ./internal/test/conformance -run 'Conformance/.*G9'
//
// runs sentence G9 on each of them ('Conformance/.*G1$' leaves G10 to G12 out), and
// SOCKNOTIFY_BACKEND restricts it to one. Each case runs with handles, and under BySock with sockets
// of package sock.
//
// The cases assert order and outcome, and that nothing comes early; never how fast anything is. What
// must come has minutes, until something has not come. They count the descriptors and goroutines of
// the whole process, so nothing else may run beside them.
//
// # Scripts
//
// testdata/G4.txt is the script of sentence G4: the words of the contract, in lines that begin with
// ">", and its cases. Cases that need goroutines with code of their own or the garbage collector
// are in Go (cases.go), and the script lists them ("case X, in Go").
//
//	case DropsNothingElse
//		stream s peer              # a pair of connected Unix streams
//		stream other
//		deliver peer "x"           # is sent, and has arrived at s
//		enable s in level; enable other in level; remove other    # one call with three registrations
//		post k 5
//		now s in, other removed, k posted data=5    # all is there already, in any order
//		enable s out level key=k -> ErrKeyMismatch  # the Result
//
// A line is a verb and its words. Blocks are indented, a # begins a comment. The port of a case is
// p; others are declared by "ports q", and a statement is about one with "q:" before it. A
// registration's key is the name of its socket, unless key= says otherwise; a key that begins with @
// is an object that only the port keeps reachable (kept, released); one that begins with % is no
// text (keys.go). What contains a range is repeated: enable s{1..40} in level is one call with forty
// registrations, now s{1..40} in wants forty notifications, and neighbors with the same range take
// turns; a word that is only a range repeats and vanishes. The verbs:
//
//	for x in 1..9, repeat 3    repeat a block; $x is the value. After the case's name, "for x in …"
//	                           repeats the case with new ports
//	until s out                repeats a block until a poll finds this notification; until nothing,
//	                           until it finds none; until success, until an error after "perhaps"
//	                           has not come
//	if, unless                 a block for a system, a backend, "windows" (also where it is faked),
//	                           "kernel-edges", or a socket that is connected
//	enable, disable, remove,   registrations, joined by ";" to one call, which may end with "dequeue
//	nothing, dequeue           entries timeout -> notifications" or "-> error"; -> after a registration
//	                           is its error, "perhaps" and one of several "A|B", and the name of the
//	                           field that it must name. The timeout may be a context: context,
//	                           canceled, no-context. "-> any 3" keeps what came for the next
//	                           statements, as "-> some" does, and "-> whatever" is anything; either
//	                           may be an error that follows. "-> ends" is for a call whose goroutine
//	                           a connection ends
//	deregister, post, close-port    calls of the port
//	drop q                     forgets a port that is not closed, and waits until it is collected
//	since, count               counts of Stats and of the process, and by how much they grew since
//	                           then (+Stale <=9)
//	rearm s in edge            enables with Drained what has no socket of package sock (T2)
//	hears, on, on-without      what programs that use edges want and do (testdata/strict/edge.txt)
//	want, now                  the next notifications, for which calls wait; all that is there,
//	                           without waiting
//	entries 7                  how many entries the calls of want, completed and accepted have
//	all context                ranges over Port.All
//	within 100 s in            this is among the next hundred notifications
//	none, empty, poll, quiet   nothing comes for a while; nothing is there; whatever is there; nothing
//	                           comes and the port does not spin
//	now-at-most, never         whatever is there is this notification; has not these events
//	wait w 3, woken, waits     calls that wait; one has ended with this; all of them still wait, and
//	                           the port does not spin. A wait may have "; enable …", entries=,
//	                           timeout=, deadline=, cancelable, starting (it need not sleep yet) and
//	                           all (Port.All); woken may have a block, which is repeated until one
//	                           has ended
//	workers 4 entries=3        goroutines that dequeue; served waits until they have these;
//	                           end-workers closes the port, and nothing else may have come, but for
//	                           these or whatever; "count Notifications rest" are all others
//	together                   runs the statements of its block, or "together i in 1..8" the block for
//	                           each value, all at once; "together one" wants one of those that may
//	                           fail to succeed
//	steady                     repeats its block, which must allocate nothing; with workers=4 so many
//	                           goroutines dequeue, and taken waits for one of them
//	parked, cancel             so many calls wait; the context of w ends
//	stream, tcp, udp, datagrams, packets, net, mptcp-pair    pairs of connected sockets
//	listener, fresh, refused, udp-nowhere, unix-fresh, …     single sockets; fresh has done nothing,
//	                           the connect of refused has failed
//	strange c how              a connection that fails, or is none
//	file f "text", contents    a file; what it contains
//	handle n s, dup, reuse, become    the number of s alone; a duplicate; a closed number that names
//	                           another socket
//	bind, listen, connect, accept, send, deliver, drain, receive, fill, shutdown, error    calls on
//	                           sockets; a text may be followed by how often it is sent
//	received s "text"          waits until the socket has received this since the last such
//	                           statement, by itself, in a block, or by operations
//	read-deadline c 1ms        a connection's reads end then, or with "none" they wait
//	close, end, shut, reset    the last three wait until the peer has it
//	arrived s in               waits until the system knows of it
//	take-error s               reads its error once there is one; a watcher may have taken it before
//	AcceptEx a l s             the accept of package overlapped, into s
//	Recv, Send, Connect, …     operations of package overlapped, with a name, joined by ";" to a batch
//	ReadAt r f 5 0, WriteAt    operations on files: length or text, and offset
//	completed r "text"         the next completions, in any order: bytes, text or errors; "or" before
//	                           an error; "beside-posts" drops posts
//	Accept, dial, accepted     connections as notifications
//	snapshot s State=fired     what package debug reports of the only registration: value, zero, set,
//	                           same or new
//	page Closed=true           and of the port
//	pages 7 0 s{1..40}         pages of so many, from a number on, have these sockets' registrations
//	addresses s tcp            its addresses
//	observe o, trace t, traced, stop    observing and tracing; all that was traced
//
// A case with "fact" asserts nothing: it prints a row of the table in docs/platforms.md (facts.go).
//
// A failure begins with the script's line, as in "G4.txt:12: now s removed".
//
// # Files
//
//	run.go, script.go, interpret.go        running a sentence; parsing a script; running one
//	verbs.go, ranges.go, calls.go, keys.go the verbs; ranges; calls on ports; keys that are no text
//	received.go, requests.go, together.go  what arrives; operations; goroutines
//	allocations.go, counts.go              counts of allocations, and others
//	inspection.go                          package debug
//	facts.go, seam.go, native_*.go         facts: of ports, of backends, of Windows' own call
//	helpers.go, sockets.go, sys_*.go       what cases in Go and scripts have in common
//	absences.go                            what some systems cannot show
//
// The other files have the cases in Go, which cases.go lists.
package conformance
