// Package tlsrecord continues TLS connections of servers after their handshake, which crypto/tls
// makes. Then a connection is two keys, two sequence numbers and the name of a cipher suite: some
// hundred bytes, where a tls.Conn is some thousand.
//
// It speaks AES-GCM: the suites of TLS 1.3 that have it, and those of TLS 1.2 with ECDHE. For each
// other connection Handshake.Take returns an error, and it stays with crypto/tls.
//
// The files, in the order in which a connection passes them: handshake.go follows the handshake and
// takes over; conn.go is a net.Conn, state.go what its handshake has agreed upon; records.go opens
// and makes records, messages.go has the handshake messages in them; ciphers.go drops ciphers when
// a connection is idle. alert.go has the errors, keys.go the key schedules.
//
// Package server has no Conn for an idle connection. It uses Records alone.
//
// crypto/tls differs from it in this, besides the type of an alert in a *net.OpError: it accepts a
// handshake message as a whole before it refuses it, and answers each request for a KeyUpdate; here
// several have one answer. It begins a connection with small records; here they are as large as
// the data, up to 16 KiB.
package tlsrecord
