package stress

import "testing"

// splitmix64 is a bijection that scatters its argument.
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the key stream of an identity from a position on.
func fill(b []byte, id, pos uint64) {
	var word uint64
	for i := range b {
		at := pos + uint64(i)
		if i == 0 || at%8 == 0 {
			word = splitmix64(splitmix64(id) + at/8)
		}
		b[i] = byte(word >> (at % 8 * 8))
	}
}

// matches returns the index of the first byte that is not the key stream's, or len(b).
func matches(b []byte, id, pos uint64) int {
	var word uint64
	for i := range b {
		at := pos + uint64(i)
		if i == 0 || at%8 == 0 {
			word = splitmix64(splitmix64(id) + at/8)
		}
		if b[i] != byte(word>>(at%8*8)) {
			return i
		}
	}
	return len(b)
}

func TestStream(t *testing.T) {
	whole := make([]byte, 100)
	fill(whole, 7, 1000)
	for from := range whole {
		part := make([]byte, len(whole)-from)
		fill(part, 7, 1000+uint64(from))
		if n := matches(whole[from:], 7, 1000+uint64(from)); n != len(part) || string(part) != string(whole[from:]) {
			t.Fatalf("from %d: differs at %d", from, n)
		}
	}
	if matches(whole, 8, 1000) > 4 || matches(whole, 7, 1001) > 4 {
		t.Fatal("another stream matches")
	}
}
