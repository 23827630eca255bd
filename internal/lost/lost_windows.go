// Package lost classifies errors of the system by what they mean for the connection of a stream.
package lost

import (
	"errors"
	"io"

	"golang.org/x/sys/windows"
)

// Silent reports whether err means that there is no connection, without a reason for that.
func Silent(err error) bool {
	return err == io.EOF || errors.Is(err, windows.WSAESHUTDOWN) || errors.Is(err, windows.WSAENOTCONN)
}

// Certain reports whether err ends a connection.
func Certain(err error) bool {
	return errors.Is(err, windows.WSAECONNRESET) || errors.Is(err, windows.WSAECONNREFUSED) ||
		errors.Is(err, windows.WSAECONNABORTED) || errors.Is(err, windows.WSAETIMEDOUT) ||
		errors.Is(err, windows.WSAENETRESET)
}

// Possible reports whether err may end a connection. The connection may also continue.
func Possible(err error) bool {
	return errors.Is(err, windows.WSAEHOSTUNREACH) || errors.Is(err, windows.WSAENETUNREACH) ||
		errors.Is(err, windows.WSAENETDOWN)
}
