//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include "sn.h"
*/
import "C"

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// The errors of Go as those of Windows. docs/c.md has the table, with the source of each row.

// callCode returns the result of a call that waits. The port was open when the call began.
func callCode(err error) C.uint32_t {
	switch err {
	case nil:
		return C.ERROR_SUCCESS
	case socknotify.ErrTimeout:
		return C.WAIT_TIMEOUT
	case socknotify.ErrClosed:
		return C.ERROR_ABANDONED_WAIT_0
	}
	return systemCode(err)
}

// creationCode returns the error of a port that could not be made.
func creationCode(err error) C.uint32_t {
	if errors.Is(err, errors.ErrUnsupported) {
		return C.ERROR_NOT_SUPPORTED
	}
	return systemCode(err)
}

// registrationCode returns the result of a registration.
func registrationCode(err error) C.DWORD {
	switch {
	case errors.Is(err, socknotify.ErrInvalid), errors.Is(err, socknotify.ErrKeyMismatch), errors.Is(err, socknotify.ErrOtherPort):
		return C.ERROR_INVALID_PARAMETER
	case errors.Is(err, socknotify.ErrNotRegistered):
		return C.ERROR_NOT_FOUND
	case errors.Is(err, socknotify.ErrBadSocket):
		return C.WSAENOTSOCK
	}
	return C.DWORD(systemCode(err))
}

// operationCode returns the error of an operation that was not started, or that has failed.
func operationCode(err error) C.uint32_t {
	switch {
	case err == io.EOF:
		return C.ERROR_HANDLE_EOF
	case errors.Is(err, overlapped.ErrCanceled), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
		return C.ERROR_OPERATION_ABORTED
	case errors.Is(err, socknotify.ErrInvalid), errors.Is(err, socknotify.ErrOtherPort):
		return C.ERROR_INVALID_PARAMETER
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return C.uint32_t(C.sn_of_errno(C.int(e)))
	}
	if errors.Is(err, socknotify.ErrBadSocket) {
		return C.WSAENOTSOCK
	}
	return C.ERROR_UNIDENTIFIED_ERROR
}

// systemCode returns the error of a call that the system has refused.
func systemCode(err error) C.uint32_t {
	var e syscall.Errno
	if !errors.As(err, &e) {
		return C.ERROR_UNIDENTIFIED_ERROR
	}
	switch e {
	case syscall.EMFILE, syscall.ENFILE:
		return C.ERROR_TOO_MANY_OPEN_FILES
	case syscall.ENOSPC:
		return C.ERROR_NO_SYSTEM_RESOURCES
	}
	return C.uint32_t(C.sn_of_errno(C.int(e)))
}
