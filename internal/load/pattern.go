package load

import "math/rand/v2"

const (
	// period is the length of the pattern. It is prime, so that no usual size of a request or a buffer is a multiple
	// of it, which would hide bytes that were lost or sent twice.
	period = 65_521
	// stride is the distance between the phases of neighbouring connections.
	stride = 40_503
	// chunk is the largest number of bytes of one receive or send.
	chunk = 256 << 10
)

// A pattern is random bytes that repeat. Connection i sends them from byte i*stride on, one request after the other,
// so bytes of another position or another connection differ. The slice is a chunk longer than the period, so each
// chunk of each stream is contiguous.
type pattern []byte

func newPattern() pattern {
	p := make(pattern, period+chunk)
	rand.NewChaCha8([32]byte{}).Read(p[:period])
	for i := period; i < len(p); {
		i += copy(p[i:], p[:period])
	}
	return p
}

// at returns n bytes, at most a chunk, of the stream with this phase.
func (p pattern) at(phase, pos int64, n int) []byte {
	o := int((phase + pos) % period)
	return p[o : o+n]
}
