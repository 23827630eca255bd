package contend

import (
	"fmt"
	"testing"
)

// With any number of goroutines no byte is lost or duplicated, and none is left when the workload begins.
func TestBase(t *testing.T) {
	for _, tt := range []struct{ registered, active, batch, goroutines int }{
		{2, 2, 256, 1},
		{100, 50, 8, 1}, // 25 pairs: the last group is a smaller one
		{128, 128, 8, 2},
		{128, 128, 8, 16},
		{8, 8, 2, 16}, // more goroutines than groups
		{2, 2, 1, 4},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			tokens, err := newTokens(Params{Registered: tt.registered, Active: tt.active, Batch: tt.batch})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tokens.close)
			tokens.begin()
			if n := tokens.passAll(tt.goroutines, tt.batch); n < 40_000 {
				t.Errorf("%d passes", n)
			}
			if n := tokens.drain(); n != tt.active/2 {
				t.Errorf("%d bytes, and there were %d", n, tt.active/2)
			}
			if ns := tokens.base(tt.goroutines, tt.batch); ns <= 0 {
				t.Errorf("%v ns", ns)
			}
			if n := tokens.drain(); n != 0 {
				t.Errorf("%d bytes are left", n)
			}
		})
	}
}
