package suite

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
)

func TestBuild(t *testing.T) {
	b, err := newBuilder(fstest.MapFS{
		"good.c":   {Data: []byte("#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n")},
		"bad.c":    {Data: []byte("#include \"there_is_no_such_header.h\"\n")},
		"linked.c": {Data: []byte("int main(void) { return 0; }\n")},
	}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, err := b.build(t.Context(), "good")
	if errors.Is(err, errNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(path).Output(); string(said) != "hello\n" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := b.build(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), "there_is_no_such_header.h") {
		t.Errorf("%v", err)
	}
	if _, err := b.build(t.Context(), "linked", "there_is_no_such_library"); err == nil || !strings.Contains(err.Error(), "there_is_no_such_library") {
		t.Errorf("%v", err)
	}
}
