package contend

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"

	"github.com/socknotify/socknotify/bench/internal/param"
)

const (
	datagrams = 64   // handled for a notification
	roomEach  = 2048 // bytes
	buffer    = 4 << 20
)

// serveUDP sends datagrams back, one or up to 64 in a system call.
func serveUDP(backend string, batch bool, ready func(string)) error {
	port, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		return err
	}
	s, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	s.SetReadBuffer(buffer)
	ready(s.LocalAddr().String())
	handle := singles(s)
	if batch {
		handle = batches(s)
	}
	out := make([]socknotify.Notification[int], 1)
	regs := []socknotify.Registration[int]{socknotify.Enable(s, 1, socknotify.EventIn, oneShot)}
	for {
		if _, err := port.Process(regs, out, -1); err != nil || regs[0].Result != nil {
			return errors.Join(err, regs[0].Result)
		}
		handle()
	}
}

// Datagrams that the server cannot receive or send are lost, as datagrams may be.

func singles(s *sock.Socket) func() {
	buf := make([]byte, roomEach)
	return func() {
		for range datagrams {
			n, from, err := s.RecvFrom(buf)
			if err != nil {
				return
			}
			s.SendTo(buf[:n], from)
		}
	}
}

func batches(s *sock.Socket) func() {
	msgs, bufs := make([]sock.Message, datagrams), make([]byte, datagrams*roomEach)
	room := func(i int) []byte { return bufs[i*roomEach : (i+1)*roomEach] }
	return func() {
		for i := range msgs {
			msgs[i].Buf = room(i)
		}
		n, err := s.RecvBatch(msgs)
		if err != nil {
			return
		}
		for i := range n {
			msgs[i].Buf = msgs[i].Buf[:msgs[i].N]
		}
		s.SendBatch(msgs[:n])
	}
}

func listenUDPStd() (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err == nil {
		c.SetReadBuffer(buffer)
	}
	return c, err
}

// serveUDPStd is one goroutine that reads and writes.
func serveUDPStd(_ param.Params, ready func(string)) error {
	c, err := listenUDPStd()
	if err != nil {
		return err
	}
	ready(c.LocalAddr().String())
	buf := make([]byte, roomEach)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		c.WriteToUDPAddrPort(buf[:n], from)
	}
}

// serveUDPBatchStd is the same with the batches of golang.org/x/net.
func serveUDPBatchStd(_ param.Params, ready func(string)) error {
	c, err := listenUDPStd()
	if err != nil {
		return err
	}
	ready(c.LocalAddr().String())
	pc := ipv4.NewPacketConn(c)
	msgs, bufs := make([]ipv4.Message, datagrams), make([]byte, datagrams*roomEach)
	for i := range msgs {
		msgs[i].Buffers = [][]byte{nil}
	}
	for {
		for i := range msgs {
			msgs[i].Buffers[0] = bufs[i*roomEach : (i+1)*roomEach]
		}
		n, err := pc.ReadBatch(msgs, 0)
		if err != nil {
			return err
		}
		for i := range n {
			msgs[i].Buffers[0] = msgs[i].Buffers[0][:msgs[i].N]
		}
		pc.WriteBatch(msgs[:n], 0)
	}
}
