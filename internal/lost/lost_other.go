//go:build !unix && !windows

// Package lost classifies the system's errors by what they say about a stream's connection.
package lost

import "io"

// Silent reports whether err means that there is no connection, without a reason for that.
func Silent(err error) bool { return err == io.EOF }

// Certain reports whether err ends a connection. It returns false, because there is no backend for this system.
func Certain(error) bool { return false }

// Possible reports whether err may end a connection. It returns false, because there is no backend for this system.
func Possible(error) bool { return false }
