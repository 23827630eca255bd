package sock

// A Held is a reference to a socket for many calls. Each method of [Socket] adds a reference and releases it; the
// methods of Held do not, and are cheaper. They may be mixed with the methods of Socket. They keep working after
// the socket's Close, until Release. No method may be called after Release.
type Held struct{ socket *Socket }

// Hold adds a reference to the socket. Until Release, Close ends the registration, but the system does not close the
// descriptor. Hold fails with net.ErrClosed if the socket is closed.
func (s *Socket) Hold() (Held, error) {
	if _, ok := s.fd.Use(); !ok {
		return Held{}, closed("hold")
	}
	return Held{s}, nil
}

// TCP reports whether the socket is a TCP connection, or a listener whose connections are all TCP. It makes no system
// call.
func (h Held) TCP() bool { return h.socket.is(kindTCP) }

// Release releases the reference. It must be called exactly once. If Close was called and this is the last
// reference, the system closes the socket now.
func (h Held) Release() { h.socket.fd.Done() }

// Socket returns the socket.
func (h Held) Socket() *Socket { return h.socket }

// Recv is like [Socket.Recv].
func (h Held) Recv(b []byte) (int, error) { return h.socket.recv(b) }

// Send is like [Socket.Send].
func (h Held) Send(b []byte) (int, error) { return h.socket.send(b) }

// SendV is like [Socket.SendV].
func (h Held) SendV(bufs [][]byte) (int, error) { return h.socket.sendV(h.socket.fd.Handle(), bufs) }
