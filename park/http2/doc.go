// Package http2 is the server side of HTTP/2 (RFC 9113) for handlers of net/http, on connections that are parked while no
// stream is open. An idle connection then has no goroutine and no frame buffer. It keeps its record, the table of the
// header compression that its client refers to, and with TLS the *tls.Conn.
//
//	server := http2.Server{Server: &http.Server{Handler: handler}}
//	err := server.ServeConn(ctx, conn) // a connection whose first bytes are HTTP/2's preface, or TLS with "h2"
//
// While streams are open, one goroutine reads the connection, and each handler has a goroutine. There is no goroutine that
// writes: a handler writes what it has made, and what others have queued before.
//
// # What is missing
//
// The package is a beginning, and park.HTTPServer does not use it yet.
//
//   - There is no listener: the program accepts connections, and finds out which of them speak HTTP/2. net/http's
//     TLSNextProto can hand connections over by [Server.NextProto], but its goroutine then stays until the connection ends.
//   - The hooks ConnState and ConnContext of http.Server are not called.
//   - Of http.HTTP2Config, SendPingTimeout, PingTimeout, CountError, MaxReadFrameSize and MaxEncoderHeaderTableSize are not
//     used. Response headers are sent without a dynamic table, so they are longer than net/http's.
//   - http.Pusher, CONNECT with a protocol (RFC 8441), priorities (RFC 9218) and http.CloseNotifier are absent.
//   - There is no fuzz test of frame sequences, and the cost of abuse was not measured beside net/http's.
//   - A stream that waits for its request's body, or for its client's window, keeps the goroutine of its handler, and its
//     connection is not parked.
//
// # Differences from net/http
//
//   - Requests with a header field that belongs to a connection, and with contradicting lengths, are malformed, and their
//     stream is reset, as RFC 9113 asks. net/http answers some of them with the status 400.
//   - A write beyond the declared Content-Length fails with http.ErrContentLength from the first byte, as in HTTP/1.1.
//   - The header Upgrade is not sent, because HTTP/2 forbids it.
package http2
