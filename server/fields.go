package server

import (
	"fmt"

	"github.com/socknotify/socknotify"
)

// A field is a number that a server was given.
type field struct {
	name  string
	value int64
	most  int64 // 0: no matter
}

// checkFields names the first that makes no sense.
func checkFields(fields ...field) error {
	for _, f := range fields {
		switch {
		case f.value < 0:
			return invalid("%s: negative (%d)", f.name, f.value)
		case f.most > 0 && f.value > f.most:
			return invalid("%s: more than %d (%d)", f.name, f.most, f.value)
		}
	}
	return nil
}

// wrong says what is the matter with an argument or a field.
func invalid(format string, args ...any) error {
	return fmt.Errorf("server: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
}
