package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A builder compiles the contenders that are C programs into a folder, with $CC or cc.
type builder struct {
	cc    string // empty: none
	dir   string
	built map[string]built // by name
}

type built struct {
	path string
	err  error
}

// newBuilder copies the sources into a folder and returns a builder.
func newBuilder(sources fs.FS, dir string) (*builder, error) {
	cc, _ := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	return &builder{cc, dir, map[string]built{}}, os.CopyFS(dir, sources)
}

var errNoCompiler = errors.New("no C compiler")

// build compiles the program of this name with libraries, if it was not compiled before, and
// returns its path. The error is the first one of the compiler, in one line.
func (b *builder) build(ctx context.Context, name string, libraries ...string) (string, error) {
	p, ok := b.built[name]
	if !ok {
		p.path, p.err = b.compile(ctx, name, libraries)
		b.built[name] = p
	}
	return p.path, p.err
}

func (b *builder) compile(ctx context.Context, name string, libraries []string) (string, error) {
	if b.cc == "" {
		return "", errNoCompiler
	}
	args := []string{"-O2", "-pthread", "-o", name, name + ".c"}
	for _, l := range libraries {
		args = append(args, "-l"+l)
	}
	cmd := exec.CommandContext(ctx, b.cc, args...)
	cmd.Dir = b.dir
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w", firstError(string(said)), err)
	}
	return filepath.Join(b.dir, name), nil
}

// firstError returns the first error message in the output of a compiler.
func firstError(said string) string {
	for line := range strings.Lines(said) {
		for _, sign := range []string{"error: ", "cannot find "} {
			if at := strings.Index(line, sign); at >= 0 {
				return strings.TrimSpace(strings.TrimPrefix(line[at:], "error: "))
			}
		}
	}
	first, _, _ := strings.Cut(said, "\n")
	return first
}

// facts returns the name and version of the compiler.
func (b *builder) facts(ctx context.Context) string {
	if b.cc == "" {
		return errNoCompiler.Error()
	}
	said, _ := exec.CommandContext(ctx, b.cc, "--version").Output()
	first, _, _ := strings.Cut(string(said), "\n")
	return cmp.Or(first, b.cc)
}
