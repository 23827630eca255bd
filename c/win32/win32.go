//go:build linux && cgo && !386 && !arm && !mips && !mipsle

// Package win32 has what programs for Windows need besides completion ports and sockets: threads, events, select, names of
// hosts, texts of errors and the console. It is C. It uses the C files of the folder above by their public header,
// socknotify.h, and by layer.h, and is linked into the library with them.
package win32

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra -Wno-unused-parameter
import "C"
