// Package park lets servers with blocking handlers, on package net or net/http, park their idle connections. A
// parked connection needs no goroutine. That is worthwhile where thousands of connections wait for their peers most of the
// time: keep-alive, long polling, chat, devices.
//
// A handler that has answered and would now block in Read parks its connection instead, and returns:
//
//	func serve(conn net.Conn) {
//		n, err := conn.Read(buf) // does not block: the connection was parked until it became readable
//		...
//		lot.Park(conn, serve)
//	}
//
// When the connection becomes readable, is closed by the peer, fails, or exceeds its idle timeout, the [Lot]
// runs the function on a goroutine of its pool. The function may block, read, write, and park the connection
// again. Its next Read returns the same result as a Read that had blocked all the time.
//
// [Server] does this with a handler that is called for each message, and has timeouts and limits. [Listener] hands a
// connection to any server only when its client has sent something.
//
// [Streams] serves connections that any goroutine may write to at any time.
//
// [HTTPServer] does this for the keep-alive connections of a net/http server. [Suspend] does it for
// a request that waits for its answer, such as a long poll.
//
// [Tunnels] join the connections of a proxy, also behind httputil.ReverseProxy, and [ConnectProxy]
// answers CONNECT.
//
// No descriptor is duplicated. A parked connection remains registered with Go's own poller besides the lot's
// port. docs/park.md says what that costs, when parking is worthwhile, and what to watch out for.
package park
