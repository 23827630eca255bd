// Package conn has the connections of package server: what a worker does from a notification until
// the connection waits for the next one. It calls its server by the interface Server.
//
// The files, in the order in which a connection passes them:
//
//	start.go         a connection is accepted
//	preamble.go      its header arrives
//	handshake.go     its TLS handshake, which takes turns with others
//	notification.go  a notification arrives: for bytes, for room, or a post
//	call.go          a call of the handler
//	read.go          the handler reads, by Read or by the calls of the input
//	receive.go       bytes are received
//	tls.go           TLS records arrive or are sent; a KeyUpdate and an alert are answered
//	cryptotls.go     TLS that crypto/tls does, and that of a hijacker
//	write.go         the handler writes; bytes are sent, or queued
//	source.go        Stream and SendFile; the peer takes what was queued
//	release.go       the worker leaves the connection, and enables its registration
//	timeouts.go      an idle, write or read timeout, or that of the handshake
//	timer.go         a function of AfterFunc is due
//	rates.go         ReadRate or WriteRate forbids to go on
//	hijack.go        Hijack and Resume
//	shutdown.go      Shutdown, and the grace for first requests
//	end.go           Close, Abort, and a failure with its cause
//	finish.go        the last notification; a panic
//
// What they have in common: conn.go has the connection with its parts, state.go its word with the
// tables of its bits, shared.go what all connections of a server share, address.go what is known of
// the peer, errors.go the errors. Below them are parts that know no connection: input.go, output.go,
// flow.go (a Rate in one direction), buffers.go and traffic.go (the counted bytes). A file calls
// those below it, with few exceptions: a failure sends what a call has held before it.
package conn
