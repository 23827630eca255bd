//go:build (unix && !linux) || windows

package sock

// maxVec is how many buffers one SendV takes.
const maxVec = 64

// gather fills in the buffers of one SendV. It is not ok where they are more than one message can have,
// because part of a message would be another message.
func gather(to *[maxVec][]byte, bufs [][]byte, stream bool) (n int, ok bool) {
	room := maxIO
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if stream && (n == maxVec || room == 0) {
			break
		}
		if n == maxVec {
			return 0, false
		}
		if stream {
			b = b[:min(len(b), room)]
			room -= len(b)
		}
		kernelReads(b)
		to[n] = b
		n++
	}
	return n, true
}
