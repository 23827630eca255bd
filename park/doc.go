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
// [HTTPServer] does this for the keep-alive connections of a net/http server. [Suspend] does it for
// a request that waits for its answer, such as a long poll.
//
// Package stream serves connections that any goroutine may write to at any time, and package tunnel
// joins the connections of a proxy.
//
// No descriptor is duplicated. A parked connection remains registered with Go's own poller besides the lot's
// port. docs/park.md says what that costs, when parking is worthwhile, and what to watch out for.
package park

// The files.
//
//	lot.go          the Lot; internal/serving/parking is what it does
//	stats.go, errors.go, tls.go
//
// A connection of a Server:
//
//	listen.go       accepting, and waiting for accepted connections in Shutdown
//	server.go       a message, its timeouts, Shutdown
//	firstbyte.go    Listener, for other servers: the first byte has come
//
// One of an HTTPServer:
//
//	http.go         the server; http_http2.go: a preface of HTTP/2; http_tls.go: TLS
//	http_listener.go  new connections, requests that begin, and Shutdown
//	http_first.go   a connection that has sent nothing yet
//	http_session.go what net/http reads and writes; http_linger.go: it waits a little before parking
//	http_conn.go    the connection between two requests
//	suspend.go      a handler calls Suspend
//	suspended.go    the request waits, and is answered; suspended_request.go: what is kept of it;
//	                suspended_limits.go: how many may wait; suspended_stream.go: HTTP/2
