package parking

import (
	"errors"
	"fmt"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
)

// The errors of package park with the same names.
var (
	// ErrParked is returned by Park when the connection is already parked.
	ErrParked = errors.New("already parked")
	// ErrUnparkable is returned by Park for a connection that cannot be parked. Its read deadline
	// was cleared, and it can be used as before. errors.Is(ErrUnparkable, socknotify.ErrInvalid) is
	// true.
	ErrUnparkable = fmt.Errorf("the connection cannot be parked: %w", socknotify.ErrInvalid)
	// ErrClosed is returned by Park when the lot is closed. errors.Is(ErrClosed, net.ErrClosed) is
	// true.
	ErrClosed error = serving.ClosedError("park: the lot is closed")
)
