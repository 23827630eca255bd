package kqueue

import "math"

// A kevent is a kevent of the kernel, without the fields that differ between the systems.
type kevent struct {
	fd     int
	filter filter
	flags  uint32
	fflags uint32
	data   int64
}

// A filter is one of a socket's two knotes.
type filter uint8

const (
	reads filter = iota
	writes
	unknown
)

// The flags of a kevent, which are the same on all systems.
const (
	evAdd     = 0x1
	evDelete  = 0x2
	evEnable  = 0x4
	evDisable = 0x8
	evClear   = 0x20
	evError   = 0x4000
	evEOF     = 0x8000
)

// With noteLowat, a reading knote reports no less than data. No buffer holds tooMuch.
const (
	noteLowat = 0x1
	tooMuch   = math.MaxInt32
)
