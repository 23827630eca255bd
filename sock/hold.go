package sock

// A Held is a socket in use for many calls, which then need not be counted one by one: where a server
// that closes its connections itself holds each for as long as it serves it, that is a good part of what a
// request costs it. The calls are those of [Socket], and may be mixed with them. They go on working after
// the socket's Close, until Release; none may be made after it.
type Held struct{ socket *Socket }

// Hold begins a use of the socket that Release ends: until then a Close ends the registration, but the
// system does not close the descriptor. It fails where the socket is closed.
func (s *Socket) Hold() (Held, error) {
	if _, ok := s.fd.Use(); !ok {
		return Held{}, closed("hold")
	}
	return Held{s}, nil
}

// TCP reports whether the socket is of TCP; of a listener, whether all its connections are. It asks nobody.
func (h Held) TCP() bool { return h.socket.is(kindTCP) }

// Release ends the use. If Close was called meanwhile and this was the last use, the socket is closed now.
// It is to be called once.
func (h Held) Release() { h.socket.fd.Done() }

// Socket is the socket that is held.
func (h Held) Socket() *Socket { return h.socket }

// Recv is [Socket.Recv].
func (h Held) Recv(b []byte) (int, error) { return h.socket.recv(b) }

// Send is [Socket.Send].
func (h Held) Send(b []byte) (int, error) { return h.socket.send(b) }

// SendV is [Socket.SendV].
func (h Held) SendV(bufs [][]byte) (int, error) { return h.socket.sendV(h.socket.fd.Handle(), bufs) }
