//go:build !unix

package gateway

import "net"

// A raw is for Unix. Elsewhere a stream writes with a deadline, on the goroutine that has its turn.
type raw struct{}

func newRaw(net.Conn) raw { return raw{} }

func (raw) ok() bool                  { return false }
func (raw) writable() bool            { return false }
func (raw) read([]byte) (int, error)  { return 0, nil }
func (raw) write([]byte) (int, error) { return 0, nil }
