//go:build (unix && !linux) || windows

package sock

import "net/netip"

// An error behind the first message of a batch is dropped if the system tells it only once. Such errors
// are of datagrams sent earlier, and may get lost in any case.

func sysRecvBatch(h uintptr, msgs []Message) (int, error) {
	for i := range msgs {
		n, from, err := sysRecvFrom(h, msgs[i].Buf)
		if err != nil {
			return some(i, err)
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
			return some(i, err)
		}
		msgs[i].N = len(msgs[i].Buf)
	}
	return len(msgs), nil
}

// some is the outcome of a batch that ended at message n.
func some(n int, err error) (int, error) {
	if n > 0 {
		return n, nil
	}
	return 0, err
}
