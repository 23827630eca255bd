//go:build unix

// Package lost classifies the system's errors by what they say about a stream's connection.
package lost

import (
	"errors"
	"io"
	"syscall"
)

// Silent reports whether an error says that there is no connection any more, or not yet, and not why.
func Silent(err error) bool {
	return err == io.EOF || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// Certain reports whether an error is one that ends a connection.
func Certain(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ETIMEDOUT)
}

// Possible reports whether an error may end a connection. The connection may also live on: a system that is asked to
// (IP_RECVERR) reports these of each packet.
func Possible(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, syscall.EHOSTDOWN) || errors.Is(err, syscall.ENETDOWN) ||
		errors.Is(err, syscall.ENETRESET) || errors.Is(err, syscall.EPROTO)
}
