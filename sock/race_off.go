//go:build !race && (unix || windows)

package sock

func kernelWrites([]byte) {}
func kernelReads([]byte)  {}
