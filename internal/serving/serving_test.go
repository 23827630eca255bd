package serving

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/testclock"
)

// testLog returns a log that writes lines without a time to the buffer.
func testLog() (*Log, *bytes.Buffer) {
	b := new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "stack" {
				return slog.Attr{}
			}
			return a
		}}))
	return &Log{Prefix: "pkg: ", Name: "n", Logger: func() *slog.Logger { return logger }}, b
}

// Ten lines of a message are logged in a second, and the number of the others at its end.
func TestLogLimit(t *testing.T) {
	c := testclock.Install(t)
	l, b := testLog()
	for i := range 25 {
		l.Log(slog.LevelWarn, "limit", "i", i)
		l.Log(slog.LevelDebug, "not enabled")
	}
	l.Log(slog.LevelInfo, "other")
	if n := strings.Count(b.String(), `msg="pkg: limit" i=`); n != 10 {
		t.Errorf("%d lines, want 10", n)
	}
	if !strings.Contains(b.String(), `level=INFO msg="pkg: other" name=n`) {
		t.Error("another message is limited too")
	}
	b.Reset()
	c.Advance(time.Second)
	if want := "level=WARN msg=\"pkg: limit\" suppressed=15 name=n\n"; b.String() != want {
		t.Errorf("got %q, want %q", b, want)
	}
	b.Reset()
	for range 11 {
		l.Log(slog.LevelWarn, "limit")
	}
	l.Flush()
	l.Flush()
	c.Advance(time.Second)
	if got := strings.Count(b.String(), "limit"); got != 11 || !strings.Contains(b.String(), "suppressed=1 ") {
		t.Errorf("got %q", b)
	}
}

// A conn is a connection whose RemoteAddr panics, unless it has an address.
type conn struct {
	net.Conn
	remote net.Addr
}

func (c conn) RemoteAddr() net.Addr {
	if c.remote == nil {
		panic("no address")
	}
	return c.remote
}

func TestGuard(t *testing.T) {
	l, b := testLog()
	peer := conn{remote: &net.UnixAddr{Name: "peer", Net: "unix"}}
	if err := l.Guard(peer, func() error { return os.ErrExist }); err != os.ErrExist || b.Len() > 0 {
		t.Errorf("error %v, logged %q", err, b)
	}
	for _, test := range []struct {
		conn conn
		want string
	}{
		{peer, "level=ERROR msg=\"pkg: a handler panicked\" remote=peer panic=reason name=n\n"},
		{conn{}, "level=ERROR msg=\"pkg: a handler panicked\" remote=unknown panic=reason name=n\n"},
	} {
		b.Reset()
		err := l.Guard(test.conn, func() error { panic("reason") })
		var p *PanicError
		if !errors.As(err, &p) || p.Value != "reason" || !bytes.Contains(p.Stack, []byte("TestGuard")) {
			t.Errorf("error %v", err)
		}
		if b.String() != test.want {
			t.Errorf("logged %q, want %q", b, test.want)
		}
	}
	if l.Panics() != 2 {
		t.Errorf("counted %d panics", l.Panics())
	}
}

// runtime.Goexit ends the goroutine, and is no panic.
func TestGuardGoexit(t *testing.T) {
	l, b := testLog()
	done := make(chan bool)
	go func() {
		defer close(done)
		l.Guard(conn{}, func() error { runtime.Goexit(); return nil })
		done <- true
	}()
	if <-done || b.Len() > 0 {
		t.Errorf("Guard returned or logged %q", b)
	}
}

// Without a Logger a line goes to slog.Default().
func TestDefaultLogger(t *testing.T) {
	_, b := testLog()
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	new(Log).Log(slog.LevelWarn, "message")
	(&Log{Logger: func() *slog.Logger { return nil }}).Log(slog.LevelWarn, "message")
	if n := strings.Count(b.String(), "message"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

func TestErrors(t *testing.T) {
	timeout := fmt.Errorf("of a connection: %w", TimeoutError("late"))
	var e net.Error
	if !errors.Is(timeout, os.ErrDeadlineExceeded) || !errors.As(timeout, &e) || !e.Timeout() {
		t.Error("a TimeoutError is no timeout")
	}
	if !errors.Is(fmt.Errorf("%w", ClosedError("over")), net.ErrClosed) {
		t.Error("a ClosedError is not net.ErrClosed")
	}
}

func TestOr(t *testing.T) {
	for field, want := range map[int]int{0: 7, 3: 3, -1: 0} {
		if got := Or(field, 7); got != want {
			t.Errorf("Or(%d, 7) is %d, want %d", field, got, want)
		}
	}
}

func TestEnding(t *testing.T) {
	given := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, early := range []bool{false, true} { // the channels are asked for before they are closed, too
		var e Ending
		check := func(when string, begun, over bool) {
			t.Helper()
			if e.HasBegun() != begun || given(e.Begun()) != begun || given(e.Over()) != over {
				t.Errorf("early %t, %s: begun %t %t, over %t", early, when, e.HasBegun(), given(e.Begun()), given(e.Over()))
			}
		}
		if early {
			check("new", false, false)
		}
		e.Left(0)
		if early {
			check("no members", false, false)
		}
		e.Begin(2)
		if early {
			check("begun", true, false)
		}
		e.Left(1)
		e.Begin(1)
		if early {
			check("begun again", true, false)
		}
		e.Left(0)
		check("over", true, true)
		e.Begin(0)
		e.Left(0)
		check("over for good", true, true)
	}
}
