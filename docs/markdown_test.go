package docs_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A page is a document, divided into its parts.
type page struct {
	path   string
	prose  string // the text with blank lines in the place of blocks, but with inline code
	blocks []block
	faults []string
}

// A block is code between fences.
type block struct {
	line int // of its first fence
	lang string
	text string // without the indentation of the fence
}

var fence = regexp.MustCompile("^([ \t]*)```+[ \t]*([^`\\s]*)[ \t]*$")

// languages are the languages that a block may name.
var languages = []string{"", "c", "go", "mermaid", "text"}

// parse divides a document into its parts.
func parse(path, text string) *page {
	p := &page{path: path}
	var prose strings.Builder
	var open *block
	var indent string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if f := fence.FindStringSubmatch(line); f != nil {
			switch {
			case open == nil:
				indent, open = f[1], &block{line: number, lang: f[2]}
				if !slices.Contains(languages, f[2]) {
					p.fault(number, "a block in %q: must be one of %q", f[2], languages)
				}
			case f[2] == "":
				p.blocks = append(p.blocks, *open)
				open = nil
			default:
				p.fault(number, "a block begins inside the one of line %d", open.line)
			}
		} else if open != nil {
			open.text += strings.TrimPrefix(line, indent) + "\n"
		} else {
			prose.WriteString(line)
		}
		prose.WriteByte('\n')
	}
	if open != nil {
		p.fault(open.line, "the block does not end")
	}
	p.prose = prose.String()
	return p
}

func (p *page) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf("%s:%d: %s", p.path, line, fmt.Sprintf(format, args...)))
}

// faultAt adds a fault at an offset of the prose.
func (p *page) faultAt(offset int, format string, args ...any) {
	p.fault(1+strings.Count(p.prose[:offset], "\n"), format, args...)
}

var heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *#*$`)

// anchors returns the names of the headings of a page.
func (p *page) anchors() map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(p.prose, -1) {
		name := anchor(h[1])
		for i := 1; names[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor(h[1]), i)
		}
		names[name] = true
	}
	return names
}

var linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// anchor returns the name of a heading: its words in lower case, with hyphens for spaces and without punctuation.
func anchor(heading string) string {
	heading = linked.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// files returns the paths of all files of the project whose names end in suffix.
func files(t *testing.T, suffix string) (found []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, suffix):
			found = append(found, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// documents returns the paths of all documents of the project.
func documents(t *testing.T) []string {
	t.Helper()
	return files(t, ".md")
}

// A checker adds the faults of a page.
type checker func(t *testing.T, p *page)

// TestDocuments checks the code, the links and the commands of every document.
func TestDocuments(t *testing.T) {
	checks := []checker{codeChecker(t), checkLinks, commandChecker(t)}
	total := map[string]int{}
	for _, path := range documents(t) {
		p := parse(path, read(t, path))
		for _, check := range checks {
			check(t, p)
		}
		for _, fault := range p.faults {
			t.Error(fault)
		}
		for _, b := range p.blocks {
			total[b.lang]++
		}
	}
	for lang, least := range map[string]int{"go": 20, "": 10} {
		if total[lang] < least {
			t.Errorf("only %d blocks of %q were found", total[lang], lang)
		}
	}
}
