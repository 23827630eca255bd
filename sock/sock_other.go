//go:build !linux

package sock

import (
	"errors"
	"net/netip"
)

var errSystem = errors.Join(errors.New("sock: not on this system yet"), errors.ErrUnsupported)

// New makes an unbound socket.
func New(Network) (*Socket, error) { return nil, errSystem }

// Bind gives the socket a local address.
func (s *Socket) Bind(netip.AddrPort) error { return errSystem }

// Listen makes a bound TCP socket accept connections, backlog of them in advance.
func (s *Socket) Listen(int) error { return errSystem }

// ListenTCP makes a TCP socket that listens on an address.
func ListenTCP(netip.AddrPort, int) (*Socket, error) { return nil, errSystem }

// Accept takes a pending connection, or ErrWouldBlock.
func (s *Socket) Accept() (*Socket, error) { return nil, errSystem }

// Connect starts to connect.
func (s *Socket) Connect(netip.AddrPort) error { return errSystem }

// Recv receives into b.
func (s *Socket) Recv([]byte) (int, error) { return 0, errSystem }

// Send sends from b and returns how much the system took.
func (s *Socket) Send([]byte) (int, error) { return 0, errSystem }

// RecvFrom receives one datagram and tells who sent it.
func (s *Socket) RecvFrom([]byte) (int, netip.AddrPort, error) {
	return 0, netip.AddrPort{}, errSystem
}

// SendTo sends one datagram.
func (s *Socket) SendTo([]byte, netip.AddrPort) error { return errSystem }

// Shutdown shuts one direction of a connection, or both.
func (s *Socket) Shutdown(How) error { return errSystem }

// Err returns the pending error of the socket, once.
func (s *Socket) Err() error { return errSystem }

// ResetOnClose makes Close abort the connection.
func (s *Socket) ResetOnClose() error { return errSystem }

// Close closes the socket.
func (s *Socket) Close() error { return errSystem }

// UnixPair makes two connected Unix sockets.
func UnixPair(bool) (a, b *Socket, err error) { return nil, nil, errSystem }

func (s *Socket) localAddr() netip.AddrPort { return netip.AddrPort{} }
