// Package tlsrecord continues TLS connections of servers after their handshake, which crypto/tls
// makes. Then a connection is two keys, two sequence numbers and the name of a cipher suite: some
// hundred bytes, where a tls.Conn is some thousand.
//
// It speaks AES-GCM: the suites of TLS 1.3 that have it, and those of TLS 1.2 with ECDHE. For each
// other connection Handshake.Take returns an error, and it stays with crypto/tls.
//
// The files, in the order in which a connection passes them:
//
//	cutter.go     the records that are given to crypto/tls
//	handshake.go  following the handshake, and taking the connection over
//	state.go      what the handshake has agreed upon
//	conn.go       the connection as a net.Conn
//	pump.go       from received bytes to plaintext, with what must be answered
//	records.go    opening and making a record
//	keyupdate.go  the handshake messages in records; a KeyUpdate alone is accepted
//	alert.go      alerts, and the errors
//	ciphers.go    dropping the ciphers of idle connections
//	keys.go       the key schedules
//
// Package server has no Conn for an idle connection. It has a Pump.
//
// crypto/tls differs from it in this, besides the type of an alert in a *net.OpError: it accepts a
// handshake message as a whole before it refuses it, and answers each request for a KeyUpdate; here
// several have one answer. It begins a connection with small records; here they are as large as
// the data, up to 16 KiB.
package tlsrecord
