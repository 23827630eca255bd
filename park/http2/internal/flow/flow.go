// Package flow is the flow control of HTTP/2 (RFC 9113, 5.2 and 6.9): the windows of a connection
// and of its streams. A window counts the payload of DATA frames with its padding. A value is not
// safe for concurrent use.
package flow

import "errors"

const (
	// Initial is the size of every window until a SETTINGS or WINDOW_UPDATE frame changes it.
	Initial = 1<<16 - 1
	// Max is the largest size of a window.
	Max = 1<<31 - 1
)

// ErrOverflow means that the peer has made a window larger than Max, which is a FLOW_CONTROL_ERROR.
var ErrOverflow = errors.New("flow: the window is larger than 2^31-1")

// A Send is the window for what is sent: how many bytes the peer is ready to receive. It is negative
// after the peer has lowered SETTINGS_INITIAL_WINDOW_SIZE by more than the window had (6.9.2).
type Send int32

// Available returns how many bytes may be sent. It is not negative.
func (w Send) Available() int { return int(max(w, 0)) }

// Take accounts for n bytes that are sent. It panics if they are more than Available.
func (w *Send) Take(n int) {
	if n < 0 || n > w.Available() {
		panic("flow: more is sent than the window has")
	}
	*w -= Send(n)
}

// Grow adds n, the increment of a WINDOW_UPDATE frame or the change of SETTINGS_INITIAL_WINDOW_SIZE,
// which may be negative. It reports whether the window was closed, with nothing available, and is
// open now. It fails with ErrOverflow, and changes nothing, if the window would be larger than Max.
func (w *Send) Grow(n int32) (opened bool, err error) {
	size := int64(*w) + int64(n)
	switch {
	case size > Max:
		return false, ErrOverflow
	case size < -Max: // what was sent was in a window of Max
		panic("flow: the window is smaller than any change can make it")
	}
	opened = *w <= 0 && size > 0
	*w = Send(size)
	return opened, nil
}

// A Receive is the window for what is received. It consists of what the peer may send, of what was
// received and is in use, and of what was used and is to be returned to the peer:
//
//	the peer sends            Take    may be sent  -> in use
//	the bytes are used        Return  in use       -> to be returned
//	WINDOW_UPDATE is due      Return  to be returned -> may be sent
//
// The caller knows what is in use. The sum of the three is the size of the window.
type Receive struct {
	open int32 // the peer may send it; negative after Resize, until enough is returned
	used int32 // to be returned
}

// NewReceive returns a window of a size.
func NewReceive(size int32) Receive { return Receive{open: size} }

// Take accounts for n bytes that were received. It reports false, and changes nothing, if the peer
// has sent more than it may. An empty frame is permitted in any window.
func (w *Receive) Take(n int32) bool {
	if n > max(w.open, 0) {
		return false
	}
	w.open -= n
	return true
}

// Return accounts for n bytes that were received before and are used. The peer learns it when what
// is to be returned is at least half of size, so that bytes that are used one at a time do not cause
// a frame each. Then Return returns the increment of the WINDOW_UPDATE frame, and otherwise 0.
func (w *Receive) Return(n, size int32) (increment int32) {
	if w.used += n; w.used == 0 || w.used < size/2 {
		return 0
	}
	increment, w.used = w.used, 0
	w.open += increment
	return increment
}

// Resize changes the size of the window, which the peer learns by SETTINGS_INITIAL_WINDOW_SIZE.
func (w *Receive) Resize(change int32) { w.open += change }
