package native

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFirstError(t *testing.T) {
	for _, tt := range []struct{ said, want string }{
		{"x.c:1:10: fatal error: uv.h: No such file or directory\n    1 | #include <uv.h>\n", "uv.h: No such file or directory"},
		{"/usr/bin/ld: cannot find -luv: No such file or directory\ncollect2: error: ld returned 1\n", "cannot find -luv: No such file or directory"},
		{"something else\nand more\n", "something else"},
		{"", ""},
	} {
		if got := firstError(tt.said); got != tt.want {
			t.Errorf("firstError(%q) = %q, want %q", tt.said, got, tt.want)
		}
	}
}

func TestBuild(t *testing.T) {
	b, err := NewBuilder(fstest.MapFS{
		"good.c": {Data: []byte("#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n")},
		"bad.c":  {Data: []byte("#include \"there_is_no_such_header.h\"\n")},
	}, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	path, err := b.Build(t.Context(), "good")
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(path).Output(); string(said) != "hello\n" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := b.Build(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), "there_is_no_such_header.h") {
		t.Errorf("%v", err)
	}
	if _, err := b.Build(t.Context(), "good", "there_is_no_such_library"); err == nil || !strings.Contains(err.Error(), "there_is_no_such_library") {
		t.Errorf("%v", err)
	}
}

func TestNoCompiler(t *testing.T) {
	b, err := NewBuilder(fstest.MapFS{}, t.TempDir(), "/nonexistent/cc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context(), "good"); err != ErrNoCompiler {
		t.Errorf("%v", err)
	}
	if f := b.Facts(t.Context()); f != ErrNoCompiler.Error() {
		t.Errorf("%q", f)
	}
}
