//go:build unix

package lost

import "syscall"

var (
	silent  = []error{syscall.EPIPE, syscall.ENOTCONN}
	certain = []error{syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED,
		syscall.ETIMEDOUT}
	possible = []error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		syscall.ENETDOWN, syscall.ENETRESET, syscall.EPROTO}
)
