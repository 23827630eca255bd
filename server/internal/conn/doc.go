// Package conn has the connections of package server: what a worker does from a notification until
// the connection waits for the next one. It calls its server by the interface Server.
//
// The files: those of the worker first, then what a request passes below them. A file calls those
// below it, except that TLS and timers call the handler again, and that Close and failures reach
// into the output and a hijack.
//
//	owner.go                  a worker's notifications, and the calls of the handler
//	rearm.go, finish.go       releasing a connection: enabling its registration, or its end
//	hijack.go, address.go     giving the socket away; its addresses
//	preamble.go               headers before the protocol
//	handshake.go, tlsstack.go TLS by crypto/tls, and of hijackers
//	tlsconn.go                TLS that was taken over from it
//	input.go, read.go         receiving
//	source.go, write.go       sending
//	end.go                    Shutdown, Close and failures
//	timeouts.go, timer.go     what expires; rates.go: the limits of bytes in time
//	shared.go, traffic.go     what all connections of a server share; their counters
//	buffers.go                the memory of both directions
//	state.go, errors.go       the connection: its fields, and its word with the tables of its bits
package conn
