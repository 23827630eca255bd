//go:build unix

// Package lost classifies errors of the system by what they mean for the connection of a stream.
package lost

import (
	"errors"
	"io"
	"syscall"
)

// Silent reports whether err means that there is no connection, without a reason for that.
func Silent(err error) bool {
	return err == io.EOF || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// Certain reports whether err ends a connection.
func Certain(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ETIMEDOUT)
}

// Possible reports whether err may end a connection. The connection may also continue, because with IP_RECVERR the
// system reports these errors for single packets.
func Possible(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, syscall.EHOSTDOWN) || errors.Is(err, syscall.ENETDOWN) ||
		errors.Is(err, syscall.ENETRESET) || errors.Is(err, syscall.EPROTO)
}
