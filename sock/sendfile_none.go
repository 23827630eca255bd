//go:build netbsd || openbsd || aix || windows

package sock

import "os"

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}
