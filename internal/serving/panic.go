package serving

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
)

// A PanicError is the cause of a connection whose handler has panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine, 64 KiB at most
}

func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// IsPanic reports whether err has a *PanicError.
func IsPanic(err error) bool {
	if err == nil {
		return false // before p, which is allocated
	}
	var p *PanicError
	return errors.As(err, &p)
}

const maxStack = 64 << 10

// Try calls f. It returns nil if f has returned, and what f has panicked with otherwise.
// runtime.Goexit in f ends the caller too.
func Try(f func()) (p *PanicError) {
	defer func() {
		if v := recover(); v != nil {
			stack := make([]byte, maxStack)
			p = &PanicError{v, stack[:runtime.Stack(stack, false)]}
		}
	}()
	f()
	return nil
}

// Guard calls f for a connection, and returns its error. A panic is logged, and returned as a
// *PanicError.
func (l *Log) Guard(conn net.Conn, f func() error) (err error) {
	if p := Try(func() { err = f() }); p != nil {
		l.Panic("a handler panicked", p, "remote", Remote(conn))
		return p
	}
	return err
}

// Call is Guard for a function that has no error.
func (l *Log) Call(conn net.Conn, f func()) error {
	return l.Guard(conn, func() error {
		f()
		return nil
	})
}

// Panic logs a panic and counts it. args are the keys and values that say where it was.
func (l *Log) Panic(message string, p *PanicError, args ...any) {
	l.panics.Add(1)
	l.Log(slog.LevelError, message,
		append(args, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))...)
}

// Panics returns the number of panics, for Stats.Panics.
func (l *Log) Panics() uint64 { return l.panics.Load() }

// A Peer is a connection whose Remote is formatted only if a line with it is logged.
type Peer struct{ net.Conn }

func (p Peer) LogValue() slog.Value { return slog.StringValue(Remote(p.Conn)) }

// Remote returns the address of a connection's peer as text. It is unknown if the method panics,
// as it may after a panic of another method.
func Remote(conn net.Conn) string {
	remote := "unknown"
	Try(func() {
		if a := conn.RemoteAddr(); a != nil {
			remote = a.String()
		}
	})
	return remote
}
