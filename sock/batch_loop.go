//go:build (unix && !linux) || windows

package sock

import "net/netip"

// If a message after the first one fails, its error is dropped, and the next call fails again. If the system
// reports the error only once, it is lost. Such errors concern datagrams that were sent earlier, and may be lost in
// any case.

func sysRecvBatch(h uintptr, msgs []Message) (int, error) {
	for i := range msgs {
		n, from, err := sysRecvFrom(h, msgs[i].Buf)
		if err != nil {
			return partial(i, err)
		}
		msgs[i].N, msgs[i].Addr = n, from
	}
	return len(msgs), nil
}

func sysSendBatch(h uintptr, msgs []Message) (int, error) {
	for i := range msgs {
		var err error
		if msgs[i].Addr == (netip.AddrPort{}) {
			_, err = sysSend(h, msgs[i].Buf)
		} else {
			err = sysSendTo(h, msgs[i].Buf, msgs[i].Addr)
		}
		if err != nil {
			return partial(i, err)
		}
		msgs[i].N = len(msgs[i].Buf)
	}
	return len(msgs), nil
}

// partial returns the result of a batch that failed at message n.
func partial(n int, err error) (int, error) {
	if n > 0 {
		return n, nil
	}
	return 0, err
}
