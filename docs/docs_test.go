// Package docs_test keeps the documents true to the code.
package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/conformance"
	"github.com/socknotify/socknotify/internal/facts"
)

// Every sentence that has a conformance case is in the contract.
func TestEverySentence(t *testing.T) {
	text := read(t, "contract.md")
	for _, s := range conformance.Sentences() {
		if !strings.Contains(text, "\n- **"+s+"** ") {
			t.Errorf("contract.md has no sentence %s", s)
		}
	}
}

// Every sentence without one names a test of another kind.
func TestEveryTest(t *testing.T) {
	has := map[string]bool{}
	for _, s := range conformance.Sentences() {
		has[s] = true
	}
	for _, item := range strings.Split(read(t, "contract.md"), "\n- **")[1:] {
		item, _, _ = strings.Cut(item, "\n\n")
		sentence, _, _ := strings.Cut(item, "**")
		if !has[sentence] && !strings.Contains(item, "→") {
			t.Errorf("nothing holds %s", sentence)
		}
	}
}

// The fact sheet that is kept has a row for each that is printed.
func TestEveryFact(t *testing.T) {
	text := read(t, "platforms.md")
	for _, name := range facts.Names() {
		if !strings.Contains(text, "\n| "+name+" | ") {
			t.Errorf("platforms.md has no row %q: run go test -run FactSheet -v", name)
		}
	}
}

// Each row about porting names sentences of the contract.
func TestPortingNamesSentences(t *testing.T) {
	contract, rows := read(t, "contract.md"), 0
	for _, line := range strings.Split(read(t, "porting.md"), "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 5 || strings.HasPrefix(line, "| | ") || strings.HasPrefix(line, "| --- ") {
			continue
		}
		rows++
		for _, s := range strings.Split(cells[3], ", ") {
			if !strings.Contains(contract, "**"+s+"**") && !strings.Contains(contract, " "+s+", ") {
				t.Errorf("%s: the contract has no sentence %q", cells[0], s)
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d rows about porting", rows)
	}
}

// The tests that the documents name exist.
func TestNamedTests(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{"contract.md", "design.md", "platforms.md", "porting.md", "park.md", "../README.md", "../CONTRIBUTING.md"} {
		for _, name := range regexp.MustCompile("`((Test|Fuzz|Benchmark)[A-Z]\\w+)`").FindAllStringSubmatch(read(t, doc), -1) {
			if !strings.Contains(code.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which does not exist", doc, name[1])
			}
		}
	}
}

// The Go code of the documents is compiled: as a program, or as a part of the tests and examples, where it is word
// for word.
func TestCode(t *testing.T) {
	var sources []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			sources = append(sources, "\n"+unindented(read(t, path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, doc := range documents(t) {
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, doc), -1) {
			blocks++
			if strings.HasPrefix(block[1], "package ") {
				compile(t, doc, block[1])
				continue
			}
			text := "\n" + unindented(block[1])
			if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, text) }) {
				t.Errorf("%s: no source has\n%s", doc, block[1])
			}
		}
	}
	if blocks < 7 {
		t.Errorf("only %d blocks of code", blocks)
	}
}

// documents are all of the project's.
func documents(t *testing.T) (found []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "../*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

// unindented is a text without indentations and empty lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// compile checks a program.
func compile(t *testing.T, doc, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", doc, err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
