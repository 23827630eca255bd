package nowait

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// A socketConn is a *net.TCPConn or a *net.UnixConn.
type socketConn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// pair returns both ends of a connection. The first one must be used by the test alone.
func pair(t *testing.T, network string) (peer, conn socketConn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/socket"
	}
	l, err := net.Listen(network, address)
	must(t, err)
	defer l.Close()
	a, err := net.Dial(network, l.Addr().String())
	must(t, err)
	b, err := l.Accept()
	must(t, err)
	for _, c := range []net.Conn{a, b} {
		t.Cleanup(func() { c.Close() })
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	}
	return a.(socketConn), b.(socketConn)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	must(t, err)
}

// urgent sends a byte that is not in the stream of TCP.
func urgent(t *testing.T, conn socketConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	must(t, err)
	var failed error
	must(t, raw.Control(func(fd uintptr) { failed = sockettest.SendUrgent(fd, '!') }))
	if errors.Is(failed, errors.ErrUnsupported) {
		t.Skip(failed)
	}
	must(t, failed)
}

func socketOf(t *testing.T, conn socketConn) Socket {
	t.Helper()
	raw, err := conn.SyscallConn()
	must(t, err)
	return Of(raw)
}

// through moves what conn receives through a pipe to another connection, until it has received want,
// or with want "" until the end. It returns what the peer of the other connection gets.
func through(t *testing.T, conn socketConn, network, want string) string {
	t.Helper()
	pipe := TakePipe()
	if pipe == nil {
		t.Skip("the system has no pipes")
	}
	defer pipe.Release()
	from := socketOf(t, conn)
	far, near := pair(t, network)
	to := socketOf(t, near)
	read := make(chan string, 1)
	go func() {
		got, _ := io.ReadAll(far)
		read <- string(got)
	}()
	for moved := 0; want == "" || moved < len(want); {
		n, err := pipe.Fill(from)
		if err == io.EOF {
			break
		}
		must(t, err)
		m, err := pipe.Drain(to, true)
		must(t, err)
		if n != m || n == 0 || pipe.Len() != 0 {
			t.Fatalf("%d bytes came, %d went, %d are left", n, m, pipe.Len())
		}
		moved += n
	}
	must(t, near.CloseWrite())
	return <-read
}

// An urgent byte is skipped, and what follows it is moved, also if the end of the stream follows, or
// nothing.
func TestPipeUrgent(t *testing.T) {
	for _, to := range []string{"tcp", "unix"} {
		for name, c := range map[string]struct {
			parts []string // an urgent byte is between each two
			end   bool
		}{
			"more":                  {[]string{"before-", "-after"}, false},
			"more, and the end":     {[]string{"before-", "-after"}, true},
			"first":                 {[]string{"", "after"}, false},
			"first, and the end":    {[]string{"", "after"}, true},
			"last, and the end":     {[]string{"before", ""}, true},
			"alone":                 {[]string{"", ""}, true},
			"several, and the end":  {[]string{"a", "b", "c", ""}, true},
			"much on both sides":    {[]string{long, long}, false},
			"much, and the end":     {[]string{long, long}, true},
			"none, and then an end": {[]string{"text"}, true},
		} {
			t.Run(to+", "+name, func(t *testing.T) {
				peer, conn := pair(t, "tcp")
				sent := make(chan struct{})
				want := ""
				for _, part := range c.parts {
					want += part
				}
				go func() {
					defer close(sent)
					for i, part := range c.parts {
						if i > 0 {
							urgent(t, peer)
						}
						send(t, peer, part)
					}
					if c.end {
						peer.CloseWrite()
					}
				}()
				until := want
				if c.end {
					until = ""
				}
				got := through(t, conn, to, until)
				<-sent
				if len(c.parts) > 2 { // only the latest urgent byte is sure not to be in the stream
					got = strings.ReplaceAll(got, "!", "")
				}
				if got != want {
					t.Errorf("got %s, want %s", brief(got), brief(want))
				}
			})
		}
	}
}

var long = string(sockettest.Sequence(0, 3<<20))

func brief(s string) string {
	if len(s) < 100 {
		return "\"" + s + "\""
	}
	return "many bytes"
}

// Fill waits behind an urgent byte for what is to follow, and returns nothing when the deadline has
// passed.
func TestPipeUrgentWaits(t *testing.T) {
	peer, conn := pair(t, "tcp")
	pipe := TakePipe()
	if pipe == nil {
		t.Skip("the system has no pipes")
	}
	defer pipe.Release()
	urgent(t, peer)
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if n, err := pipe.Fill(socketOf(t, conn)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d, %v", n, err)
	}
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	send(t, peer, "after")
	if got := through(t, conn, "tcp", "after"); got != "after" {
		t.Errorf("%q", got)
	}
}

// A connection that was reset is not at its end.
func TestPipeReset(t *testing.T) {
	peer, conn := pair(t, "tcp")
	pipe := TakePipe()
	if pipe == nil {
		t.Skip("the system has no pipes")
	}
	defer pipe.Release()
	must(t, peer.(*net.TCPConn).SetLinger(0))
	must(t, peer.Close())
	if n, err := pipe.Fill(socketOf(t, conn)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d, %v", n, err)
	}
}
