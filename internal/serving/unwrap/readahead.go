package unwrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// An UnfitError is returned by ReadAhead for a wrapper that does not say whether it holds bytes.
type UnfitError struct {
	Type string
	Err  error // of SetReadDeadline, or of a Read whose deadline had passed
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("%s does not say whether it holds bytes: reading with a deadline in the past: %v, want %v",
		e.Type, e.Err, os.ErrDeadlineExceeded)
}

func (e *UnfitError) Unwrap() error { return e.Err }

// Past is the deadline of ReadAhead.
var Past = time.Unix(1, 0)

// ReadAhead sets a read deadline in the past and reads into p the bytes that a wrapper holds. It does not read from the
// socket:
//
//   - If n is positive, the wrapper has bytes. err is what Read returned.
//   - If n is 0 and err is nil, the wrapper has none, and the socket below tells when there is something to read.
//   - If err is an *UnfitError, the socket below may be silent although the wrapper has bytes.
//   - Any other err is the end of the connection, and what Read returned.
//
// The caller must set another read deadline, or none. conn must have no TLS handshake before it (see PendingTLS) and no
// header (see Socket.Lazy).
func ReadAhead(conn net.Conn, p []byte) (n int, err error) {
	if err := conn.SetReadDeadline(Past); err != nil {
		if ended(conn, err) {
			return 0, err
		}
		return 0, &UnfitError{fmt.Sprintf("%T", conn), err}
	}
	return ReadPast(conn, p)
}

// ReadPast is ReadAhead under a deadline that the caller has set, or that another goroutine sets.
func ReadPast(conn net.Conn, p []byte) (n int, err error) {
	for range maxEmptyReads {
		n, err = conn.Read(p)
		switch {
		case n > 0:
			return n, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, nil
		case err == nil:
			continue
		case ended(conn, err):
			return 0, err
		}
		return 0, &UnfitError{fmt.Sprintf("%T", conn), err}
	}
	return 0, &UnfitError{fmt.Sprintf("%T", conn), io.ErrNoProgress}
}

// maxEmptyReads bounds the number of Reads that return neither bytes nor an error.
const maxEmptyReads = 100

// ended reports whether err says that nothing can be read from conn any more. Package tls returns an error for good,
// unless it is that of a deadline.
func ended(conn net.Conn, err error) bool {
	if _, ok := AsTLS(conn); ok {
		return true
	}
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.ErrClosedPipe) || errors.As(err, &errno)
}
