// Package http2 is the server side of HTTP/2 (RFC 9113) for handlers of net/http, on connections that
// are parked while nothing arrives, also while streams are open. A parked connection has no goroutine
// and no frame buffer. It keeps its record, the table of the header compression that its client
// refers to, the part of a frame that has arrived, and with TLS its keys.
//
//	server := park.HTTPServer{Server: &http.Server{Handler: handler}, HTTP2: new(http2.Server)}
//	err := server.ListenAndServeTLS("cert.pem", "key.pem")
//
// A program that accepts connections itself passes those that speak HTTP/2 to [Server.ServeConn].
//
// What arrives is handled by a goroutine of the lot, which parks the connection again. Each handler
// has a goroutine, and there is none that writes: a handler writes what it has made, and what others
// have queued before. A client of package sse, a WebSocket of package websocket, and a request that
// waits by park.Suspend need no goroutine: their handlers have returned.
//
// # What is missing
//
//   - http.Pusher, priorities (RFC 9218) and http.CloseNotifier are absent.
//   - A handler that waits for its request's body, or for its client's window, keeps its goroutine.
//   - With net/http's TLSNextProto connections can be handed over by [Server.NextProto], but net/http's goroutine then stays
//     until the connection ends.
//
// # Differences from net/http
//
//   - Response headers are sent without a dynamic table unless http.HTTP2Config.MaxEncoderHeaderTableSize is set, so they
//     are longer than net/http's. MaxReadFrameSize is 65,527 bytes unless it is set.
//   - HTTP2Config.CountError also gets names that net/http does not have: those of wrong frames begin with frame_ and the
//     type, and there are frame_size_or_order, malformed_request, trailers_length, control_queue and
//     control_flood.
//   - Any frame of the client answers the PING of HTTP2Config.SendPingTimeout.
//   - While a client does not read what answers its frames, no more of its frames are handled, and after ten seconds the
//     connection ends. net/http ends it when 10,000 answers are queued. It also ends for a client that sends 1,000 PING and
//     SETTINGS frames at once, and then more than 100 in a second, beside ten for each frame of a request or response.
//   - Requests are malformed, and their stream is reset, as RFC 9113 asks, if they have a header field that belongs to a
//     connection, a trailer that must not be one, a value with a space or tab around it, a length that is not a number or
//     not that of the body, a method that is not a token, a path that neither begins with a slash nor is "*", an authority
//     with a character that no host has, several Host fields, or one that is not the authority. net/http of Go 1.26 answers
//     some of them with the status 400, and passes others to the handler.
//   - Host is not in Request.Header, as in HTTP/1.1.
//   - Spaces around the values of response headers are not sent, as in HTTP/1.1.
//   - Errors of clients are not logged; http.HTTP2Config.CountError counts them. A wrong preface is answered with GOAWAY.
//   - The client's own GOAWAY does not end the connection: it ends when the client closes it, or is idle for too long.
//   - SetKeepAlivesEnabled(false) sends GOAWAY before it closes an idle connection. It must be
//     called for the Server or the park.HTTPServer: that of the http.Server calls no hook, and package
//     net/http does not export the setting, so it has no effect here.
//   - ReadHeaderTimeout also bounds the time for which a connection may hold a part of a header
//     block, and without streams a part of any frame. A parked connection keeps at most 16 KiB of a
//     frame that is not of a header block; more of a DATA frame is handled before it is whole.
//   - CONNECT with a protocol (RFC 8441) is taken with [Server.ExtendedConnect], in net/http with
//     GODEBUG=http2xconnect=1.
//   - A write beyond the declared Content-Length fails with http.ErrContentLength from the first byte, as in HTTP/1.1.
//   - The header Upgrade is not sent, because HTTP/2 forbids it.
//
// # Files
//
// A request passes them in this order:
//
//	server.go    a Server takes connections, and ends them: Shutdown, Close
//	read.go      the goroutine that reads a connection, from the first byte
//	input.go     what was received and not handled
//	frames.go    a frame is found, its order is checked, and it goes to one of the next four
//	headers.go   HEADERS: a stream begins, or a request has trailers
//	data.go      DATA
//	settings.go  SETTINGS of both sides
//	asks.go      how often a client may ask for answers
//	window.go    WINDOW_UPDATE of both sides: what a client may send, and what it takes
//	request.go   the http.Request
//	handler.go   a handler is called, and has returned or panicked
//	body.go      a handler reads a body
//	response.go  a handler writes a response
//	send.go      a response is cut into frames, as the client's windows permit
//	write.go     the frames of all streams are queued, and written to the connection
//
// Other things that happen:
//
//	takeover.go  package park takes a stream from its handler: an event stream, a WebSocket, a tunnel
//	suspend.go   a request waits without a goroutine (park.Suspend), and gets a handler again
//	timeout.go   ReadTimeout, WriteTimeout and the deadlines of a handler are over
//	reset.go     RST_STREAM of both sides, and every other end of a stream
//	idle.go      nothing arrives: the connection is parked, is sent a PING, or ends
//	goaway.go    GOAWAY, and every end of a connection
//	hooks.go     the hook ConnState, and a panic of the program's code
//
// All stand on these:
//
//	conn.go      the fields of a connection and the tables of its states
//	stream.go    the fields of a stream and the tables of its states
//	config.go    limits, timeouts and settings, with their defaults
//	queue.go     bytes in pooled pieces
//
// Below them, internal/flow has the windows of flow control, and internal/wire the bytes of frames
// and of header blocks.
package http2
