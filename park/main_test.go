package park

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) {
	workerIdleTime = 100 * time.Millisecond // the port waits, in real time
	if !runRole() {
		pipePause = bufferPause // it passes in real time
		leaks.Main(m)
	}
}

// timeout is long enough for anything that must happen.
const timeout = time.Minute

// newLot returns a new lot. At the end of the test it closes the lot and verifies that nothing is left behind.
func newLot(t testing.TB, config Config) *Lot {
	t.Helper()
	l, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer func() {
			if s := l.Stats(); s.Parked != 0 || s.Running != 0 {
				t.Errorf("left behind: %+v, %d open", s, l.open.Load())
			}
		}()
		l.Close()
		await.Receive(t, "the lot is closed", l.ended)
		l.workers.exited.Wait()
	})
	return l
}

// pair returns both ends of a new connection over loopback.
func pair(t testing.TB, network string) (server, client net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/socket"
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for {
		if server, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		if network == "unix" || server.RemoteAddr().String() == client.LocalAddr().String() {
			break
		}
		server.Close() // of another test program, for which the port was another's
	}
	t.Cleanup(func() {
		server.Close()
		client.Close()
	})
	return server, client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// receive receives a value, and fails the test if none arrives in time.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return await.Receive(t, "a value", c)
}

// wantEmpty verifies that the channel is empty.
func wantEmpty[T any](t testing.TB, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("got %v, want nothing", v)
	default:
	}
}

func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}

// outcome is the result of a function's Read.
type outcome struct {
	text string
	err  error
	conn net.Conn
}

// reader returns a function that reads once, and the channel that receives the outcome.
func reader() (func(net.Conn), chan outcome) {
	c := make(chan outcome, 16)
	return func(conn net.Conn) {
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		c <- outcome{string(buf[:n]), err, conn}
	}, c
}

func send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}
