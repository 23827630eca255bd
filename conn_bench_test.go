package socknotify_test

import (
	"net"
	"testing"

	. "github.com/socknotify/socknotify"
)

// Enabling a standard connection again, by the connection.
func BenchmarkRearmConn(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer socket.Close()
		regs := []Registration[int]{{
			Conn: socket.(*net.UDPConn), Key: 1, Filter: EventIn, Op: OpEnable, Trigger: oneShot,
		}}
		p.Process(regs, nil, 0)
		must(b, regs)
		for b.Loop() {
			p.Process(regs, nil, 0)
		}
		must(b, regs)
	})
}
