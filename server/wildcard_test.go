package server_test

import (
	"context"
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// On a wildcard address an answer leaves from the address that was asked. A connected client drops
// one from another address.
func TestDatagramsOnWildcard(t *testing.T) {
	for _, test := range []struct{ network, on, asked string }{
		{"udp4", "0.0.0.0:0", "127.0.0.1"}, {"udp4", "0.0.0.0:0", "127.0.0.2"},
		{"udp", "[::]:0", "127.0.0.1"}, {"udp", "[::]:0", "127.0.0.2"},
		{"udp", "[::]:0", "::1"}, {"udp6", "[::]:0", "::1"},
	} {
		t.Run(test.network+" "+test.on+" "+test.asked, func(t *testing.T) {
			if test.asked == "127.0.0.2" && wine.IgnoresInfo.Here() {
				t.Skip(wine.IgnoresInfo)
			}
			backendtest.Each(t, func(t *testing.T, backend string) {
				pc, err := net.ListenPacket(test.network, test.on)
				if err != nil {
					t.Skip(err)
				}
				s := &server.PacketServer{Backend: backend, Handler: packetFunc(func(c *server.PacketConn, in []sock.Message) {
					for _, m := range in {
						if m.Local.Unmap().String() != test.asked {
							t.Errorf("a message came to %v", m.Local)
						}
						// An answer of the handler's own, as large as it likes.
						c.Send([]sock.Message{{Buf: append([]byte("answer to "), m.Buf...), Addr: m.Addr, Local: m.Local}})
					}
				})}
				served := make(chan error, 1)
				go func() { served <- s.Serve(pc) }()
				defer func() {
					if err := s.Shutdown(context.Background()); err != nil {
						t.Error(err)
					}
					if err := <-served; err != server.ErrServerClosed {
						t.Errorf("Serve = %v", err)
					}
				}()
				_, port, _ := net.SplitHostPort(pc.LocalAddr().String())
				c := dialPacket(t, address(net.JoinHostPort(test.asked, port)))
				for range 3 {
					if _, err := c.Write([]byte("it")); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, 100)
					if n, err := c.Read(b); err != nil || string(b[:n]) != "answer to it" {
						t.Fatalf("%q, %v", b[:n], err)
					}
				}
			})
		})
	}
}

type address string

func (a address) Network() string { return "udp" }
func (a address) String() string  { return string(a) }
