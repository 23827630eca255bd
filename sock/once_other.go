//go:build !linux

package sock

type sendError = error

func sendOnce(h uintptr, b []byte) (int, sendError)           { return sysSend(h, b) }
func sendFailed(e sendError) bool                             { return e != nil }
func sendAgain(_ uintptr, _ []byte, e sendError) (int, error) { return 0, e }
