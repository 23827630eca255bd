package docs_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
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
	rows    int // of tables
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
var languages = []string{"", "c", "go", "mermaid", "text"}

// parse divides a document into its parts, as GitHub does. It finds code that is not between fences, tables that are none or
// lose cells, and links without a definition.
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
	case *ast.CodeBlock:
		p.faultAt(offset(n), "code that is not between fences")
	case *ast.CodeSpan:
		p.code = append(p.code, words{p.textOf(n), offset(n)})
	case *ast.Link:
		p.links = append(p.links, words{string(n.Destination), offset(n)})
	case *ast.Image:
		p.links = append(p.links, words{string(n.Destination), offset(n)})
	case *ast.AutoLink:
		p.links = append(p.links, words{string(n.URL(p.source)), offset(n)})
	case *ast.HTMLBlock:
		html := n.Lines().Value(p.source)
		if n.HasClosure() {
			html = append(html, n.ClosureLine.Value(p.source)...)
		}
		p.addHTML(html, offset(n))
	case *ast.RawHTML:
		p.addHTML(n.Segments.Value(p.source), offset(n))
	case *ast.Heading:
		name := anchor(p.textOf(n))
		for i := 1; p.anchors[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor(p.textOf(n)), i)
		}
		p.anchors[name] = true
	case *table.TableHeader, *table.TableRow:
		p.checkRow(n)
	case *ast.Paragraph, *ast.TextBlock:
		if strings.HasPrefix(p.textOf(n), "|") {
			p.faultAt(offset(n), "this is no table")
		}
	case *ast.Text:
		// The parser leaves a link that nothing defines as it is, in several texts.
		next, _ := n.NextSibling().(*ast.Text)
		if s := p.textOf(n); strings.Contains(s, "][") || next != nil && strings.HasSuffix(s, "]") && strings.HasPrefix(p.textOf(next), "[") {
			p.faultAt(n.Segment.Start, "nothing defines the link in brackets")
		}
	}
}

func (p *page) addBlock(n *ast.FencedCodeBlock) {
	b := block{lang: string(n.Language(p.source)), text: string(n.Lines().Value(p.source))}
	end := 0
	if n.Info != nil {
		b.line, end = p.line(n.Info.Segment.Start), n.Info.Segment.Stop
		end += len(line(p.source[end:]))
	}
	if lines := n.Lines(); lines.Len() > 0 {
		b.line, end = p.line(lines.At(0).Start)-1, lines.At(lines.Len()-1).Stop
	}
	if !slices.Contains(languages, b.lang) {
		p.fault(b.line, "a block in %q: must be one of %q", b.lang, languages)
	}
	if fence := strings.TrimSpace(line(p.source[end:])); b.text != "" && (fence == "" || strings.Trim(fence, "`") != "") {
		p.fault(b.line, "the block does not end")
	}
	p.blocks = append(p.blocks, b)
}

// line returns the first line of a text, with its end.
func line(source []byte) string {
	before, _, found := strings.Cut(string(source), "\n")
	if found {
		before += "\n"
	}
	return before
}

// addHTML adds the links of a piece of HTML.
func (p *page) addHTML(html []byte, at int) {
	d := xml.NewDecoder(strings.NewReader(string(html)))
	d.Strict = false
	for {
		token, err := d.RawToken()
		if err == io.EOF {
			return
		}
		if err != nil {
			p.faultAt(at, "%v", err)
			return
		}
		start, _ := token.(xml.StartElement)
		for _, a := range start.Attr {
			if slices.Contains([]string{"src", "href", "srcset"}, a.Name.Local) {
				p.links = append(p.links, words{a.Value, at})
			}
		}
	}
}

// checkRow finds rows of a table that have too few cells, which would be empty, or too many, which are left out.
func (p *page) checkRow(row ast.Node) {
	p.rows++
	end := -1
	for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
		lines := cell.Lines()
		if lines.Len() == 0 {
			p.faultAt(end, "the row has too few cells")
			return
		}
		end = lines.At(lines.Len() - 1).Stop
	}
	if rest := strings.TrimSpace(line(p.source[end:])); rest != "" && rest != "|" {
		p.faultAt(end, "the row has too many cells: %s", rest)
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
		total["rows"] += p.rows
	}
	for what, least := range map[string]int{"blocks in go": 20, "blocks in ": 10, "links": 200, "code": 500, "rows": 200} {
		if total[what] < least {
			t.Errorf("only %d %s were found", total[what], what)
		}
	}
}

// TestFaults parses faulty documents.
func TestFaults(t *testing.T) {
	for _, test := range []struct{ source, fault string }{
		{"a\n\n    code\n", "x.md:3: code that is not between fences"},
		{"a\n\n```rust\ncode\n```\n", `x.md:3: a block in "rust": must be one of ["" "c" "go" "mermaid" "text"]`},
		{"a\n\n```go\ncode\n", "x.md:3: the block does not end"},
		{"- a\n\n  ```go\n  code\n  ```\n", ""},
		{"```\n```\n", ""},
		{"```go\n```\n", ""},
		{"| a | b |\n| --- | --- |\n| 1 | 2 |\n| | `3 \\| 4` |\n", ""},
		{"| a | b |\n| --- | --- |\n| 1 |\n", "x.md:3: the row has too few cells"},
		{"| a | b |\n| --- | --- |\n| 1 | 2 | 3 |\n", "x.md:3: the row has too many cells: | 3 |"},
		{"| a | b |\n| --- |\n| 1 | 2 |\n", "x.md:1: this is no table"},
		{"a\n[b][c] d\n", "x.md:2: nothing defines the link in brackets"},
		{"a\n[b][c] d\n\n[c]: README.md\n", ""},
		{"a [b](none.md)\n", `x.md:1: the link to "none.md": no such file`},
		{"a\nb [b](https://no host/)\n", ""}, // which is no link
		{"[b](http://example.org/)\n", `x.md:1: the link to "http://example.org/": not https`},
		{"a <https://example/> b\n", `x.md:1: the link to "https://example/": no such host can be`},
		{"# A `b` [c](#a-b-c), d\n\n[e](#a-b-c-d)\n\n[f](#f)\n\n# A b\n\n# A b\n\n[g](#a-b-1)\n",
			"x.md:1: the link to \"#a-b-c\": no such heading\nx.md:5: the link to \"#f\": no such heading"},
		{"<p>\n<img src=\"a.png\" alt>\n</p>\n", `x.md:1: the link to "a.png": no such file`},
		{"a <a href='none.md'>b</a>\n", `x.md:1: the link to "none.md": no such file`},
		{"a <a href=none.md>b</a>\n", "x.md:1: XML syntax error on line 1: invalid XML name: .md"},
		{"![b](a.png)\n\n`[b](c.md)`\n", `x.md:1: the link to "a.png": no such file`},
	} {
		p := parse("x.md", test.source)
		checkLinks(t, p)
		if got := strings.Join(p.faults, "\n"); got != test.fault {
			t.Errorf("%q has\n%s\nwant\n%s", test.source, got, test.fault)
		}
	}
}
