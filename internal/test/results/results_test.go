package results

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The output of a test that its program did not outlive has the reason.
func TestUnfinished(t *testing.T) {
	const in = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.0s\n"}
{"Action":"fail","Package":"p","Elapsed":1}
`
	var got []string
	read(strings.NewReader(in), func(r Result) {
		got = append(got, fmt.Sprintf("%s %s %q", r.Action, r.Test, r.Output))
	})
	want := []string{
		`fail TestB "=== RUN   TestB\npanic: test timed out after 1s\n"`,
		`fail  "FAIL\tp\t1.0s\n"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
