// Package conn has the connections of package server: what a worker does from a notification until
// the connection waits for the next one. It calls its server by the interface Server.
//
// The files, in the order in which a request passes them. A file calls those below it, except that
// each failure leads to end.go, and that what a goroutine writes or sets wakes a worker by state.go.
//
//	owner.go                  a worker's notifications, and the calls of the handler
//	preamble.go               headers before the protocol
//	handshake.go, tlsconn.go  TLS below a connection
//	rearm.go, finish.go       releasing a connection: enabling its registration, or its end
//	timeouts.go, timer.go     what expires
//	input.go, read.go         receiving
//	hijack.go                 giving the socket away
//	source.go, write.go       sending
//	end.go                    Shutdown, Close and failures
//	rates.go, buffers.go      the limits of bytes in time; the memory of both directions
//	state.go, extra.go        the connection: its word, with the tables of its bits; its record
//	shared.go, traffic.go     what all connections of a server share; their counters
//	address.go, errors.go     what users read
package conn
