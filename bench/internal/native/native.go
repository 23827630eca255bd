// Package native compiles the contenders that are C programs, with the system's compiler.
package native

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

// A Builder compiles programs into a folder.
type Builder struct {
	cc  string // empty: none
	dir string
}

// NewBuilder copies the sources into a folder and returns a builder. An empty compiler is $CC, or cc.
func NewBuilder(sources fs.FS, dir, compiler string) (*Builder, error) {
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, err
	}
	cc, err := exec.LookPath(cmp.Or(compiler, os.Getenv("CC"), "cc"))
	if err != nil {
		return &Builder{dir: dir}, nil
	}
	return &Builder{cc, dir}, nil
}

// ErrNoCompiler means that there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler")

// Build compiles the program of this name with libraries and returns its path. The error is the first one of the
// compiler, in one line.
func (b *Builder) Build(ctx context.Context, name string, libraries ...string) (string, error) {
	if b.cc == "" {
		return "", ErrNoCompiler
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
		if _, what, ok := strings.Cut(line, "error: "); ok {
			return strings.TrimSpace(what)
		}
		if _, what, ok := strings.Cut(line, "cannot find "); ok {
			return "cannot find " + strings.TrimSpace(what)
		}
	}
	first, _, _ := strings.Cut(said, "\n")
	return first
}

// Facts returns the name and version of the compiler.
func (b *Builder) Facts(ctx context.Context) string {
	if b.cc == "" {
		return ErrNoCompiler.Error()
	}
	said, err := exec.CommandContext(ctx, b.cc, "--version").Output()
	if err != nil {
		return b.cc
	}
	first, _, _ := strings.Cut(string(said), "\n")
	return first
}
