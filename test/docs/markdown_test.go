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

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// A page is a document, divided into its parts.
type page struct {
	path    string
	source  []byte
	blocks  []block
	code    []words // in running text
	links   []words // their targets
	anchors map[string]bool
	faults  []string
}

// A block is code between fences.
type block struct {
	line int // of its first fence
	lang string
	text string // without the indentation of the fence
}

// A words is a text at an offset of the source.
type words struct {
	text string
	at   int
}

// languages are the languages that a block may name.
var languages = []string{"", "c", "go", "html", "mermaid", "text"}

// parse divides a document into its parts, as GitHub does.
func parse(path, source string) *page {
	p := &page{path: path, source: []byte(source), anchors: map[string]bool{}}
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(p.source))
	ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			p.visit(n)
		}
		return ast.WalkContinue, nil
	})
	return p
}

func (p *page) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.FencedCodeBlock:
		p.addBlock(n)
	case *ast.CodeSpan:
		p.code = append(p.code, words{p.textOf(n), offset(n)})
	case *ast.Link:
		p.links = append(p.links, words{string(n.Destination), offset(n)})
	case *ast.Image:
		p.links = append(p.links, words{string(n.Destination), offset(n)})
	case *ast.AutoLink:
		p.links = append(p.links, words{string(n.URL(p.source)), offset(n)})
	case *ast.HTMLBlock:
		p.addHTML(n.Lines().Value(p.source), offset(n))
	case *ast.RawHTML:
		p.addHTML(n.Segments.Value(p.source), offset(n))
	case *ast.Heading:
		name := anchor(p.textOf(n))
		for i := 1; p.anchors[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor(p.textOf(n)), i)
		}
		p.anchors[name] = true
	}
}

func (p *page) addBlock(n *ast.FencedCodeBlock) {
	b := block{lang: string(n.Language(p.source)), text: string(n.Lines().Value(p.source))}
	if lines := n.Lines(); lines.Len() > 0 {
		b.line = p.line(lines.At(0).Start) - 1
	}
	if !slices.Contains(languages, b.lang) {
		p.fault(b.line, "a block in %q: must be one of %q", b.lang, languages)
	}
	p.blocks = append(p.blocks, b)
}

var htmlLink = regexp.MustCompile(`\b(?:src|href|srcset)="([^"]*)"`)

// addHTML adds the links of a piece of HTML.
func (p *page) addHTML(html []byte, at int) {
	for _, m := range htmlLink.FindAllSubmatch(html, -1) {
		p.links = append(p.links, words{string(m[1]), at})
	}
}

// textOf returns the text in a node, without its markup.
func (p *page) textOf(n ast.Node) string {
	if t, ok := n.(*ast.Text); ok {
		s := string(t.Segment.Value(p.source))
		if t.SoftLineBreak() || t.HardLineBreak() {
			s += "\n"
		}
		return s
	}
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(p.textOf(c))
	}
	return b.String()
}

// offset returns where a node is: the beginning of its first text, or else that of the block around it.
func offset(n ast.Node) int {
	for c := n; c != nil; c = c.FirstChild() {
		if t, ok := c.(*ast.Text); ok {
			return t.Segment.Start
		}
	}
	for ; n != nil; n = n.Parent() {
		if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
			return n.Lines().At(0).Start
		}
	}
	return 0
}

func (p *page) line(offset int) int { return 1 + strings.Count(string(p.source[:offset]), "\n") }

func (p *page) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf("%s:%d: %s", p.path, line, fmt.Sprintf(format, args...)))
}

// faultAt adds a fault at an offset of the source.
func (p *page) faultAt(offset int, format string, args ...any) {
	p.fault(p.line(offset), format, args...)
}

// anchor returns the name of a heading: its words in lower case, with hyphens for spaces and without punctuation.
func anchor(heading string) string {
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

// TestDocuments checks the code, the links, the tables and the commands of every document.
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
			total["blocks in "+b.lang]++
		}
		total["links"] += len(p.links)
		total["code"] += len(p.code)
	}
	for what, least := range map[string]int{"blocks in go": 20, "blocks in ": 10, "links": 200, "code": 500} {
		if total[what] < least {
			t.Errorf("only %d %s were found", total[what], what)
		}
	}
}
