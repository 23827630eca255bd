// Package lost classifies errors of the system by what they mean for the connection of a stream.
package lost

import (
	"errors"
	"io"
	"slices"
)

// Silent reports whether err means that there is no connection, without a reason for that.
func Silent(err error) bool { return err == io.EOF || isOneOf(err, silent) }

// Certain reports whether err ends a connection.
func Certain(err error) bool { return isOneOf(err, certain) }

// Possible reports whether err may end a connection. The connection may also continue, because with
// IP_RECVERR the system reports these errors for single packets.
func Possible(err error) bool { return isOneOf(err, possible) }

func isOneOf(err error, errs []error) bool {
	return slices.ContainsFunc(errs, func(e error) bool { return errors.Is(err, e) })
}
