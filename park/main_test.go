package park

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/leaks"
)

func TestMain(m *testing.M) {
	if !playRole() {
		leaks.Main(m)
	}
}

// soon is long enough for what must happen.
const soon = time.Minute

// newLot makes a lot that ends with the test, and must end cleanly.
func newLot(t testing.TB, config Config) *Lot {
	t.Helper()
	l, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		select {
		case <-l.ended:
			l.crew.gone.Wait()
		case <-time.After(soon):
			t.Errorf("the lot does not end: %+v, %d open", l.Stats(), l.open.Load())
		}
		if s := l.Stats(); s.Parked != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return l
}

// pair makes a connection over loopback: the server's end and the client's.
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
	server, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
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

// get takes a value that must come.
func get[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// none checks that nothing has come.
func none[T any](t testing.TB, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%v came", v)
	default:
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// outcome is what a function's Read said.
type outcome struct {
	text string
	err  error
	conn net.Conn
}

// reader returns a function that reads once, and where its outcome comes.
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
