package stream

import (
	"errors"

	"github.com/socknotify/socknotify/internal/serving"
)

var (
	// ErrClosed is returned by calls on a Stream that was closed, or that is being closed.
	// errors.Is(ErrClosed, net.ErrClosed) is true.
	ErrClosed error = serving.ClosedError("stream: the stream is closed")
	// ErrQueueFull is returned for what was not written because of SlowDrop.
	ErrQueueFull = errors.New("stream: the queue is full")
)
