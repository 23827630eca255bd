//go:build !linux

package server

import "errors"

// direct tells whether this system has receives and sends that can be inlined.
const direct = false

func directRecv(uintptr, []byte) (uintptr, error) { return 0, errors.ErrUnsupported }
func directSend(uintptr, []byte) (uintptr, error) { return 0, errors.ErrUnsupported }
