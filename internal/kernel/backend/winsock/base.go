package winsock

const (
	sioBaseHandle      = 0x48000022
	sioBSPHandleSelect = 0x4800001c
	sioBSPHandlePoll   = 0x4800001d
	sioBSPHandle       = 0x4800001b
)

// layers limits the number of layered providers.
const layers = 8

// base returns the handle by which the system's own provider knows a socket. Layered providers (virus
// scanners, VPNs) may have handles of their own, which the kernel does not know. Some of them do not pass
// SIO_BASE_HANDLE on. Then base uses the codes of select and WSAPoll, which return the handle one layer
// below. If nothing below a layer answers, base returns the lowest handle found. The error is that of the
// first question. final reports whether an error leaves nothing to ask for.
func base(handle uintptr, ask func(handle uintptr, code uint32) (uintptr, error), final func(error) bool) (uintptr, error) {
	b, err := ask(handle, sioBaseHandle)
	if err == nil || final(err) {
		return b, err
	}
	lowest := handle
	for range layers {
		below := lowest
		for _, code := range [...]uint32{sioBSPHandleSelect, sioBSPHandlePoll, sioBSPHandle} {
			if h, e := ask(lowest, code); e == nil && h != lowest {
				below = h
				break
			}
		}
		if below == lowest {
			break
		}
		lowest = below
		if b, e := ask(lowest, sioBaseHandle); e == nil {
			return b, nil
		}
	}
	if lowest == handle {
		return 0, err
	}
	return lowest, nil
}
