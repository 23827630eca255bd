package load_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify/bench/internal/load"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve handles each connection to a listener.
func serve(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func echo(c net.Conn) { io.Copy(c, c) }

func counters(t *testing.T) *load.Counters {
	t.Helper()
	c, err := load.OpenCounters(filepath.Join(t.TempDir(), "counters"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// run puts load on until there were so many answers.
func run(t *testing.T, cfg load.Config, answers uint64) {
	t.Helper()
	c := counters(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stood := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- load.Run(ctx, cfg, c, func() { close(stood) }) }()
	late := time.After(time.Minute)
	for c.Sum() < answers {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-late:
			t.Fatalf("%d answers after a minute", c.Sum())
		case <-time.After(time.Millisecond):
		}
	}
	<-stood
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestLoads(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cfg     load.Config
		answers uint64
	}{
		{"one", load.Config{Kind: load.Echo, Connections: 1, Size: 1, Depth: 1, Threads: 1}, 50},
		{"threads", load.Config{Kind: load.Echo, Connections: 7, Size: 64, Depth: 1, Threads: 2}, 500},
		{"pipelined", load.Config{Kind: load.Echo, Connections: 5, Size: 100, Depth: 16, Threads: 1}, 500},
		{"large", load.Config{Kind: load.Echo, Connections: 2, Size: 60_000, Depth: 1, Threads: 1}, 50},
		{"busy", load.Config{Kind: load.Echo, Connections: 20, Busy: 3, Size: 64, Depth: 1, Threads: 2}, 100},
		{"paced", load.Config{Kind: load.Echo, Connections: 20, Size: 64, Depth: 1, Threads: 2, Rate: 2000}, 50},
		{"bursts", load.Config{Kind: load.Echo, Connections: 20, Size: 64, Depth: 1, Threads: 2, Rate: 2000, Burst: 10}, 50},
		{"accept", load.Config{Kind: load.Accept, Connections: 4, Size: 64, Depth: 1, Threads: 2}, 100},
		{"idle", load.Config{Kind: load.Idle, Connections: 40, Size: 64, Depth: 1, Threads: 1}, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Addr = serve(t, echo)
			run(t, tt.cfg, tt.answers)
		})
	}
}

// Idle connections have one answer each, and no more.
func TestIdleIsSilent(t *testing.T) {
	c := counters(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := load.Config{Kind: load.Idle, Addr: serve(t, echo), Connections: 40, Size: 64, Depth: 1, Threads: 1}
	stood, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- load.Run(ctx, cfg, c, func() { close(stood) }) }()
	select {
	case <-stood:
	case err := <-ended:
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := c.Sum(); n != 40 {
		t.Errorf("%d answers", n)
	}
}

func TestUDP(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		buf := make([]byte, 2048)
		for i := 0; ; i++ {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if i%50 != 7 { // some are lost
				c.WriteToUDPAddrPort(buf[:n], from)
			}
		}
	}()
	cfg := load.Config{Kind: load.UDP, Addr: c.LocalAddr().(*net.UDPAddr).AddrPort(), Connections: 2, Size: 64, Depth: 4, Threads: 1}
	run(t, cfg, 600)
}

// What a server does wrong is noticed.
func TestWrongAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		handle     func(c net.Conn)
	}{
		{"changed", "not what was sent", func(c net.Conn) {
			b := make([]byte, 64)
			n, _ := c.Read(b)
			b[n/2] ^= 1
			c.Write(b[:n])
			io.Copy(io.Discard, c)
		}},
		{"too much", "more came back", func(c net.Conn) {
			b := make([]byte, 64)
			n, _ := c.Read(b)
			c.Write(append(b[:n], 'x'))
			io.Copy(io.Discard, c)
		}},
		{"ended", "ended it", func(c net.Conn) { c.Read(make([]byte, 64)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := load.Config{Kind: load.Echo, Addr: serve(t, tt.handle), Connections: 1, Size: 64, Depth: 1, Threads: 1}
			err := load.Run(t.Context(), cfg, counters(t), func() {})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	for _, cfg := range []load.Config{
		{Kind: load.Echo, Connections: 1, Size: 64, Depth: 1, Threads: 0},
		{Kind: load.Echo, Connections: 1, Size: 64, Depth: 1, Threads: 1000},
		{Kind: load.Echo, Connections: 1, Size: 0, Depth: 1, Threads: 1},
		{Kind: load.Echo, Connections: 1, Size: 64, Depth: 0, Threads: 1},
		{Kind: load.Echo, Connections: 1, Size: 64 << 10, Depth: 2, Threads: 1},
	} {
		if load.Run(t.Context(), cfg, counters(t), func() {}) == nil {
			t.Errorf("%+v is no error", cfg)
		}
	}
}

// Nobody listens.
func TestRefused(t *testing.T) {
	bound, err := sock.New(sock.TCP4) // so that nobody else listens there
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	if err := bound.Bind(sock.Loopback); err != nil {
		t.Fatal(err)
	}
	cfg := load.Config{Kind: load.Echo, Addr: bound.LocalAddr(), Connections: 3, Size: 64, Depth: 1, Threads: 2}
	ready := false
	if err := load.Run(t.Context(), cfg, counters(t), func() { ready = true }); err == nil || ready {
		t.Errorf("%v, ready %v", err, ready)
	}
}
