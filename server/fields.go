package server

import (
	"fmt"

	"github.com/socknotify/socknotify"
)

// A field is an option of a server that is a number.
type field struct {
	name  string
	value int64
	most  int64 // 0 means no limit
}

// checkFields returns an error that names the first field out of range.
func checkFields(fields ...field) error {
	for _, f := range fields {
		switch {
		case f.value < 0:
			return invalid("%s must not be negative, got %d", f.name, f.value)
		case f.most > 0 && f.value > f.most:
			return invalid("%s must be at most %d, got %d", f.name, f.most, f.value)
		}
	}
	return nil
}

// invalid returns an error that matches socknotify.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("server: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
}
