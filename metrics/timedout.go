package metrics

// TimedOut counts connections that were closed because of a timeout, by its cause.
type TimedOut struct {
	Idle      uint64 // IdleTimeout: nothing moved in either direction
	Slow      uint64 // WriteTimeout or SlowClose: the peer did not take what was queued for it
	Message   uint64 // ReadTimeout: the peer did not complete a message
	Handshake uint64 // HandshakeTimeout: neither its header nor its TLS handshake was complete
}
