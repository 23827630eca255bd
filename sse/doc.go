// Package sse sends Server-Sent Events, which browsers receive by EventSource, from a server on
// net/http whose idle clients need no goroutine and no buffers. Use it where a page must learn what
// happens, and has nothing to say but by requests.
//
//	news := new(sse.Server)
//	http.Handle("/news", news)
//	...
//	event, err := sse.Prepare(sse.Event{ID: "17", Data: text})
//	news.Broadcast(event)
//
// A [Server] is an http.Handler. It takes connections of HTTP/1 over from net/http or
// park.HTTPServer, and parks them as streams of package park. Any goroutine may send to any of
// them, and to all of them with an event that is prepared once. No call waits for a client: what
// the system does not take is queued, up to a bound, and sent when the client reads again.
//
// Over HTTP/2 by package park/http2 a client is a stream of its connection and needs no goroutine
// either. On a connection that cannot be taken over, such as one of net/http's HTTP/2, and for the
// ResponseRecorder of a test, a client keeps the goroutine of its request, and everything else is
// the same. A client that reads too slowly loses its stream, and not the connection.
//
//	event.go     an event, and its bytes
//	server.go    the Server, its clients, and what they are sent by itself
//	open.go      a request becomes a client
//	response.go  a client whose connection cannot be taken over
//
// docs/streams.md compares this package with package websocket and with stream.Stream.
package sse
