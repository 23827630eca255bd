package load

import "math/rand/v2"

const (
	period = 65_521   // of the pattern: prime, so that no request size hides what was lost
	chunk  = 64 << 10 // the most that is in flight on a connection
	stride = 40_503   // between the streams of neighbouring connections
)

// A pattern is random bytes that repeat: each connection sends its stream of them, one request after the
// other, from a place of its own.
type pattern []byte

func newPattern() pattern {
	p := make(pattern, period+2*chunk)
	rand.NewChaCha8([32]byte{'b'}).Read(p[:period])
	for i := period; i < len(p); {
		i += copy(p[i:], p[:period])
	}
	return p
}

// at is n bytes of the stream of a connection.
func (p pattern) at(conn int, pos uint64, n int) []byte {
	o := int((uint64(conn)*stride + pos) % period)
	return p[o : o+n]
}
