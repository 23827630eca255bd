package server_test

import (
	"crypto/tls"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A patientServer answers lines, and has commands that make every timeout of a server run for
// longer than a tick of its clock.
type patientServer struct {
	*srv
	ticked chan int // after "flood", how many bytes are queued or sent
}

// newPatientServer gives a server the handler. after is the time after which a command is answered
// that waits.
func newPatientServer(t *testing.T, s *srv) *patientServer {
	const after = 50 * time.Millisecond
	p := &patientServer{s, make(chan int)}
	p.Handler = &handler{t: t, data: func(c conn, buf []byte) error {
		for {
			line, err := c.Line(0)
			if err != nil {
				return err
			}
			switch string(line) {
			case "wait":
				c.AfterFunc(after, func(c conn) error { return write(c, "waited\n") })
			case "flood":
				n, err := fillQueue(c)
				if err != nil {
					return err
				}
				c.AfterFunc(after, func(conn) error {
					go func() { p.ticked <- n }()
					return nil
				})
			case "long":
				c.SetIdleTimeout(math.MaxInt64)
				c.SetWriteTimeout(math.MaxInt64)
				c.AfterFunc(math.MaxInt64, func(c conn) error {
					t.Error("a function was called early")
					return nil
				})
				fallthrough
			default:
				if _, err := c.Write(append(line[:len(line):len(line)], '\n')); err != nil {
					return err
				}
			}
		}
	}}
	return p
}

// exchange has a connection wait with half a message and with a full queue, and expects the
// answers.
func (p *patientServer) exchange(t *testing.T, c net.Conn) {
	t.Helper()
	send(t, c, "wait\nhalf a")
	expect(t, c, "waited\n")
	send(t, c, " message\n")
	expect(t, c, "half a message\n")
	send(t, c, "flood\n")
	c.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.CopyN(io.Discard, c, int64(<-p.ticked)); err != nil {
		t.Fatal(err)
	}
	echoes(t, c, "last\n")
}

// With the longest durations in its fields a server works as without timeouts.
func TestLongestDurations(t *testing.T) {
	t.Parallel() // it waits
	durationtest.Longest(t, new(srv), func(t *testing.T, set func(*srv)) {
		s := &srv{HandshakeTimeout: soon} // the default is too short for a busy machine
		set(s)
		s.KeepAliveConfig.Enable = s.KeepAliveConfig != net.KeepAliveConfig{}
		p := newPatientServer(t, s)
		p.exchange(t, dial(t, start(t, s)))
		addr, config := startTLS(t, s)
		first, second := dialTLS(t, addr, config), dial(t, addr)
		send(t, first, "wait\n")
		expect(t, first, "waited\n") // HandshakeTimeout of the second connection was looked at
		p.exchange(t, tls.Client(second, config))
	})
}

// The longest durations may also be set for one connection.
func TestLongestDurationsOfConn(t *testing.T) {
	s := new(srv)
	p := newPatientServer(t, s)
	c := dial(t, start(t, s))
	echoes(t, c, "long\n")
	p.exchange(t, c)
}

// A handler of datagrams that is replaced because it takes long is not counted as stuck before
// StuckAfter.
func TestLongestDurationsOfPackets(t *testing.T) {
	like := new(server.PacketServer)
	durationtest.Longest(t, like, func(t *testing.T, set func(*server.PacketServer)) {
		s := new(server.PacketServer)
		set(s)
		replaced := make(chan struct{})
		s.Handler = packetFunc(func(c *server.PacketConn, in []sock.Message) {
			<-replaced
			c.Send(in)
		})
		c := packets(t, s)
		send(t, c, "hello")
		wait(t, func() bool { return s.Stats().Workers == 2 })
		close(replaced)
		expect(t, c, "hello")
		if n := s.Stats().Stuck; n != 0 {
			t.Errorf("%d stuck handlers", n)
		}
	})
}
