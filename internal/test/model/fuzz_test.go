//go:build unix || windows

package model

import (
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// FuzzModel runs the sequences that any bytes decode to, on every backend, without waiters.
func FuzzModel(f *testing.F) {
	for _, r := range regressions {
		f.Add(encode(r.ops))
	}
	f.Add([]byte("a sequence is whatever comes along"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops := decode(b)
		for _, backend := range backendtest.Names(t) {
			runChecked(t, backend, 0, ops)
		}
	})
}

// The decoding is the inverse of the encoding, or the corpus would not be what it says.
func TestEncoding(t *testing.T) {
	for _, r := range regressions {
		if got := decode(encode(r.ops)); literal(got) != literal(r.ops) {
			t.Errorf("%s: %s", r.name, literal(got))
		}
	}
}
