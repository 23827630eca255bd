//go:build !unix && !windows

// Package lost classifies the system's errors by what they say about a stream's connection.
package lost

import "io"

// Silent reports whether an error says that there is no connection any more, or not yet, and not why.
func Silent(err error) bool { return err == io.EOF }

// Certain reports whether an error is one that ends a connection. No backend runs here, so nothing is known.
func Certain(error) bool { return false }

// Possible reports whether an error may end a connection. No backend runs here, so nothing is known.
func Possible(error) bool { return false }
