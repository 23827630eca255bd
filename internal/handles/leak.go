package handles

import (
	"slices"
	"strings"
	"testing"
)

// NoneLeft fails a test that ends, its later clean-ups included, with other descriptors open than now. Those
// that other goroutines open at any time can be left out, by what the others are for, such as "socket:".
func NoneLeft(t testing.TB, kind string) {
	t.Helper()
	of := func() []string {
		return slices.DeleteFunc(List(), func(d string) bool {
			_, to, _ := strings.Cut(d, " ")
			return !strings.HasPrefix(to, kind)
		})
	}
	before := of()
	t.Cleanup(func() {
		if after := of(); !slices.Equal(before, after) {
			t.Errorf("open before: %q\nand after: %q", before, after)
		}
	})
}
