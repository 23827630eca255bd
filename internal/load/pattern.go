package load

import "math/rand/v2"

const (
	// period is of the pattern: prime, so that no usual request or buffer size is a multiple of it
	// and hides what was lost or sent twice.
	period = 65_521
	// stride keeps the phases of neighbouring connections apart.
	stride = 40_503
	// chunk is the most that one receive or send moves.
	chunk = 256 << 10
)

// A pattern is random bytes that repeat for ever. Connection i sends them from byte i*stride on, all
// its requests one after the other, so that bytes of another place or another connection differ. One
// copy, a chunk longer than the period, holds every chunk of every stream in one piece.
type pattern []byte

func newPattern() pattern {
	p := make(pattern, period+chunk)
	rand.NewChaCha8([32]byte{}).Read(p[:period])
	for i := period; i < len(p); {
		i += copy(p[i:], p[:period])
	}
	return p
}

// at is n bytes, a chunk at most, of the stream with this phase.
func (p pattern) at(phase, pos int64, n int) []byte {
	o := int((phase + pos) % period)
	return p[o : o+n]
}
