//go:build !linux

package sock

type ioError = error

func recvOnce(h uintptr, b []byte) (int, ioError)           { return sysRecv(h, b) }
func sendOnce(h uintptr, b []byte) (int, ioError)           { return sysSend(h, b) }
func ioFailed(e ioError) bool                               { return e != nil }
func recvAgain(_ uintptr, _ []byte, e ioError) (int, error) { return 0, e }
func sendAgain(_ uintptr, _ []byte, e ioError) (int, error) { return 0, e }
