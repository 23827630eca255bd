// Package lost classifies the system's errors by what they say about a stream's connection.
package lost

import (
	"errors"
	"io"

	"golang.org/x/sys/windows"
)

// Silent reports whether an error says that there is no connection any more, or not yet, and not why.
func Silent(err error) bool {
	return err == io.EOF || errors.Is(err, windows.WSAESHUTDOWN) || errors.Is(err, windows.WSAENOTCONN)
}

// Certain reports whether an error is one that ends a connection.
func Certain(err error) bool {
	return errors.Is(err, windows.WSAECONNRESET) || errors.Is(err, windows.WSAECONNREFUSED) ||
		errors.Is(err, windows.WSAECONNABORTED) || errors.Is(err, windows.WSAETIMEDOUT) ||
		errors.Is(err, windows.WSAENETRESET)
}

// Possible reports whether an error may end a connection, which may also live on.
func Possible(err error) bool {
	return errors.Is(err, windows.WSAEHOSTUNREACH) || errors.Is(err, windows.WSAENETUNREACH) ||
		errors.Is(err, windows.WSAENETDOWN)
}
