package winsock

const (
	sioBaseHandle      = 0x48000022
	sioBSPHandleSelect = 0x4800001c
	sioBSPHandlePoll   = 0x4800001d
	sioBSPHandle       = 0x4800001b
)

// layers bounds how many providers may lie on each other.
const layers = 8

// base finds the handle that the system's own provider knows a socket by. Layered providers (virus
// scanners, VPNs) may hand out handles of their own, which the kernel does not know. Some of them do not
// let SIO_BASE_HANDLE through; then those that select and WSAPoll use lead one layer down. What they lead
// to will do where nothing below it answers. An error is that of the first question; final says that a
// failure leaves nothing to ask for.
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
