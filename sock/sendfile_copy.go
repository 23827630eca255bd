//go:build (unix && !linux) || windows

package sock

import (
	"io"
	"os"
	"sync"
)

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
