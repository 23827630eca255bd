package park

import (
	"errors"
	"net"
	"net/http"
	"reflect"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/words"
)

func TestWords(t *testing.T) {
	words.Check(t, reflect.TypeFor[Config](), reflect.TypeFor[Server](), reflect.TypeFor[HTTPServer](),
		reflect.TypeFor[ListenerConfig](), reflect.TypeFor[Stats]())
	words.Keys(t, ".")
	words.Errors(t, ErrServerClosed, ErrIdle, ErrMessageTimeout, ErrSlow, ErrHandshake, ErrWaitTimeout)
	words.Errors(t, parking.ErrClosed)
}

// A negative number means that there is no such limit.
func TestNegative(t *testing.T) {
	s := newLineServer(t, func(s *Server) { words.Negative(s) }, nil)
	a, b := s.dial(), s.dial()
	for range 3 {
		s.ask(a, "x")
		s.ask(b, "y")
		await.Until(t, "both are parked", func() bool { n := s.Stats(); return n.Parked == 2 && n.Running == 0 })
	}

	var c Config
	words.Negative(&c)
	l, err := New(c)
	check.OK(t, err)
	defer l.Close()
	server, client := conntest.Pair(t, "tcp")
	called := make(chan struct{})
	check.OK(t, l.Park(server, func(net.Conn) { close(called) }))
	conntest.Send(t, client, "x")
	await.Value(t, called)

	lc := ListenerConfig{MaxWaiting: -1}
	words.Negative(&lc)
	f, dial := firstByteListener(t, lc, nil)
	conntest.Send(t, dial(), "x")
	accepted, err := f.Accept()
	check.OK(t, err)
	accepted.Close()
}

// A value that cannot work is ErrInvalid and names the field.
func TestInvalid(t *testing.T) {
	_, err := New(Config{Backend: "none such"})
	words.Invalid(t, "Backend", err)
	handler := func(net.Conn) error { return nil }
	words.Invalid(t, "Handler", new(Server).Serve(conntest.Listen(t)))
	words.Invalid(t, "Backend", (&Server{Handler: handler, Backend: "none such"}).Serve(conntest.Listen(t)))
	words.Invalid(t, "Server", new(HTTPServer).Serve(conntest.Listen(t)))
	words.Invalid(t, "Backend", (&HTTPServer{Server: new(http.Server), Backend: "none such"}).Serve(conntest.Listen(t)))
	_, err = ListenerConfig{Backend: "none such"}.Listener(conntest.Listen(t)).Accept()
	words.Invalid(t, "Backend", err)
}

// A Server without a Logger logs a panic, and counts it.
func TestPanicWithoutLogger(t *testing.T) {
	words.Panic(t, func(value string) {
		s := newLineServer(t, func(s *Server) {
			s.Logger, s.Handler = nil, func(net.Conn) error { panic(value) }
		}, nil)
		conn := s.dial()
		conntest.Send(t, conn, "x")
		s.ended(conn)
		if err := await.Value(t, s.closed); !errors.As(err, new(*PanicError)) {
			t.Errorf("%T", err)
		}
		if n := s.Stats().Panics; n != 1 {
			t.Errorf("%d panics were counted", n)
		}
	})
}
