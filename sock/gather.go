//go:build (unix && !linux) || windows

package sock

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
