// Package park keeps idle connections without a goroutine, for programs written with package net, blocking
// handlers and net/http.
//
// A handler that has answered and would now wait in Read parks its connection instead, and returns:
//
//	func serve(conn net.Conn) {
//		n, err := conn.Read(buf) // does not wait: the connection was parked until it is readable
//		...
//		lot.Park(conn, serve)
//	}
//
// When the connection becomes readable, is closed by the peer, fails, or has been idle for too long, the
// [Lot] runs the function on a goroutine of its pool. There it may block, read, write, and park again. What
// happened is what its next Read says, as if that Read had been waiting all the time.
//
// [HTTPServer] is net/http's server with the same for keep-alive connections.
//
// A parked connection stays the standard library's own: no descriptor is duplicated, and Go's poller goes on
// watching it beside the lot's port. What that costs, when parking pays, and its traps are in docs/park.md.
package park
