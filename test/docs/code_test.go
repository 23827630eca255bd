package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// codeChecker checks the Go code. Code must be word for word a part of a source of the project, which is compiled and
// tested, or else a whole program, which is vetted.
func codeChecker(t *testing.T) checker {
	var sources []string
	for _, path := range files(t, ".go") {
		text := read(t, path)
		if !strings.Contains(text, "//go:build ignore") {
			sources = append(sources, "\n"+unindented(text))
		}
	}
	return func(t *testing.T, p *page) {
		for _, b := range p.blocks {
			if b.lang != "go" {
				if strings.Contains(b.text, "socknotify/socknotify\"") || strings.Contains(b.text, "sn.New") {
					p.fault(b.line, "our own code is not marked as Go")
				}
				continue
			}
			text := "\n" + unindented(b.text)
			switch {
			case text == "\n":
				p.fault(b.line, "no code")
			case slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, text) }):
			case strings.HasPrefix(b.text, "package "):
				if out, err := vet(t, b.text); err != nil {
					p.fault(b.line, "%v: %s", err, out)
				}
			default:
				p.fault(b.line, "no source has this code:\n%s", b.text)
			}
		}
	}
}

// unindented returns a text without indentation and empty lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// vet vets a program as a part of this module.
func vet(t *testing.T, program string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
}

// The tutorial has three of its programs completely. Of the other two, which begin as the one before, it has what is new
// and a link.
func TestTutorial(t *testing.T) {
	tutorial := parse("tutorial.md", read(t, "tutorial.md"))
	programs := 0
	for _, path := range files(t, "/main.go") {
		if !strings.Contains(path, "examples/tutorial/") {
			continue
		}
		programs++
		program := read(t, path)
		whole := slices.ContainsFunc(tutorial.blocks, func(b block) bool { return b.lang == "go" && b.text == program })
		linked := slices.ContainsFunc(tutorial.links, func(l words) bool { return l.text == path })
		if partly := strings.Contains(path, "step3") || strings.Contains(path, "step5"); !whole && !(partly && linked) {
			t.Errorf("tutorial.md does not have the code of %s", path)
		}
	}
	if programs != 5 {
		t.Errorf("%d programs", programs)
	}
}
