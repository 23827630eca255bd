//go:build !linux

package sock

import (
	"io"
	"net/netip"
	"os"
	"sync"
)

func sysAcceptable(uintptr) bool { return true }

type ioError = error

func recvOnce(h uintptr, b []byte) (int, ioError)           { return sysRecv(h, b) }
func sendOnce(h uintptr, b []byte) (int, ioError)           { return sysSend(h, b) }
func ioFailed(e ioError) bool                               { return e != nil }
func recvAgain(_ uintptr, _ []byte, e ioError) (int, error) { return 0, e }
func sendAgain(_ uintptr, _ []byte, e ioError) (int, error) { return 0, e }

// maxVec is the maximum number of buffers of one SendV.
const maxVec = 64

// gather copies the non-empty buffers of one SendV to to. For a stream it stops at maxVec buffers or maxIO bytes. For
// datagrams ok is false if there are too many buffers, because a part of a message would be a different message.
func gather(to *[maxVec][]byte, bufs [][]byte, stream bool) (n int, ok bool) {
	left := maxIO
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if stream && (n == maxVec || left == 0) {
			break
		}
		if n == maxVec {
			return 0, false
		}
		if stream {
			b = b[:min(len(b), left)]
			left -= len(b)
		}
		kernelReads(b)
		to[n] = b
		n++
	}
	return n, true
}

// If a message after the first one fails, its error is dropped, and the next call fails again. If the system
// reports the error only once, it is lost. Such errors concern datagrams that were sent earlier, and may be lost in
// any case.

func sysRecvBatch(h uintptr, msgs []Message, info bool) (int, error) {
	for i := range msgs {
		m := &msgs[i]
		n, from, local, err := 0, netip.AddrPort{}, netip.Addr{}, error(nil)
		if info {
			n, from, local, err = sysRecvInfo(h, m.Buf)
		} else {
			n, from, err = sysRecvFrom(h, m.Buf)
		}
		if err != nil {
			return partial(i, err)
		}
		m.N, m.Addr, m.Local = n, from, local
	}
	return len(msgs), nil
}

func sysSendBatch(h uintptr, msgs []Message) (int, error) {
	for i := range msgs {
		var err error
		switch m := &msgs[i]; {
		case m.Local.IsValid():
			err = sysSendInfo(h, m.Buf, m.Addr, m.Local)
		case m.Addr == (netip.AddrPort{}):
			_, err = sysSend(h, m.Buf)
		default:
			err = sysSendTo(h, m.Buf, m.Addr)
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

const copySize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// copyFile sends a part of a file by reading it into a buffer.
func copyFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for sent := 0; ; {
		got, err := f.ReadAt(buf[:min(n-sent, copySize)], offset+int64(sent))
		if got == 0 {
			if sent > 0 || err == io.EOF {
				return sent, nil
			}
			return 0, err
		}
		took, err := sysSend(h, buf[:got])
		if err != nil {
			return partial(sent, err)
		}
		if sent += took; took < got || sent == n {
			return sent, nil
		}
	}
}
