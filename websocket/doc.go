// Package websocket is a WebSocket server (RFC 6455) on net/http, whose idle connections need no goroutine and no buffers.
// Use it where thousands of WebSockets are open and few of them send at the same time.
//
//	chat := &websocket.Server{OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
//		return c.Write(kind, payload)
//	}}
//	http.Handle("/chat", chat)
//
// A [Server] is an http.Handler. It takes connections over from net/http or park.HTTPServer, and
// parks them in a park.Lot. With package park/http2 it also takes streams of HTTP/2 (RFC 8441).
// Messages are given whole to a handler. A goroutine of the lot reads what has arrived, calls the
// handler, and parks the connection again, also in the middle of a message. Ping, pong and close
// frames, fragments, limits, timeouts, and compression without context takeover (RFC 7692) are
// handled by the Server.
//
// Any goroutine may write to any connection, and to all of them with a message that is prepared once. No write waits for a
// peer: what the system does not take is queued, up to a bound, and written when the connection can be written to.
//
// The package has no client. docs/websocket.md says what a connection costs, and what happens to slow and to bad peers.
package websocket
