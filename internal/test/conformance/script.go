package conformance

import (
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed testdata
var scripts embed.FS

// A check is one case of a sentence. It runs with handles and with sockets of package sock, unless it is about the latter
// alone.
type check struct {
	sentence, name string
	sockOnly       bool
	fact           string // the row that it is, for a fact
	alone          bool   // no other may run beside it
	run            func(e *env)
}

// A statement is a line of a script, with the lines that are indented below it.
type statement struct {
	line  int
	text  string
	words []string
	block []*statement
}

// A scriptError is an error in a script.
type scriptError struct {
	at   string
	text string
}

func (e *scriptError) Error() string { return e.at + ": " + e.text }

// A parser parses the script of one sentence.
type parser struct {
	sentence string
	checks   []check
	names    map[string]bool // of the cases
}

func (p *parser) failf(line int, format string, args ...any) {
	panic(&scriptError{place(p.sentence, line), fmt.Sprintf(format, args...)})
}

func place(sentence string, line int) string { return fmt.Sprintf("%s.txt:%d", sentence, line) }

// Sentences names the sentences of the contract that have cases, in the contract's order.
func Sentences() []string {
	files, _ := scripts.ReadDir("testdata") // which is embedded
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".txt"); ok {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		const order = "PCGTEQOX"
		if d := strings.Index(order, a[:1]) - strings.Index(order, b[:1]); d != 0 {
			return d
		}
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

// checksOf returns the cases of a sentence that assert something: no facts.
func checksOf(sentence string) ([]check, error) {
	all, err := parseFile(sentence)
	return slices.DeleteFunc(all, func(c check) bool { return c.fact != "" }), err
}

func parseFile(sentence string) ([]check, error) {
	text, err := scripts.ReadFile("testdata/" + sentence + ".txt")
	if err != nil {
		return nil, err
	}
	return parse(sentence, string(text), goCases)
}

// parse parses the script of a sentence. inGo are the cases of all sentences that are written in Go.
func parse(sentence, text string, inGo map[string]func(*env)) (checks []check, err error) {
	p := &parser{sentence: sentence, names: make(map[string]bool)}
	defer func() {
		if v := recover(); v != nil {
			var ok bool
			if err, ok = v.(*scriptError); !ok {
				panic(v)
			}
		}
	}()
	lines := p.lines(text)
	sockOnly := false
	if len(lines) > 0 && lines[0].text == "sock only" {
		sockOnly, lines = true, lines[1:]
	}
	for _, s := range lines {
		if s.words[0] != "case" || len(s.words) < 2 {
			p.failf(s.line, "want a case, got %q", s.text)
		}
		c := check{sentence: sentence, name: s.words[1], sockOnly: sockOnly}
		goes := false
		var loops [][]string
		for _, a := range lists(s.words[2:], ",") {
			switch text := strings.Join(a, " "); {
			case text == "":
			case text == "sock only":
				c.sockOnly = true
			case text == "alone":
				c.alone = true
			case a[0] == "fact" && len(a) == 2:
				c.fact, _ = strconv.Unquote(a[1])
			case text == "in Go":
				goes = true
			case a[0] == "for" && len(a) > 3 && a[2] == "in":
				loops = append(loops, a)
			default:
				p.failf(s.line, "unknown attribute %q", text)
			}
		}
		if p.names[c.name] {
			p.failf(s.line, "a second case %s", c.name)
		}
		p.names[c.name] = true
		run := inGo[sentence+"/"+c.name]
		switch {
		case goes && run == nil:
			p.failf(s.line, "there is no case %s in Go", c.name)
		case goes && len(s.block) > 0:
			p.failf(s.line, "%s is in Go, and has statements", c.name)
		case !goes && run != nil:
			p.failf(s.line, "%s is in Go too", c.name)
		case !goes && len(s.block) == 0:
			p.failf(s.line, "%s has no statements", c.name)
		}
		c.run = run
		if !goes {
			p.verify(s, loops)
			c.run = func(e *env) {
				vars := make(map[string]string)
				if e.trigger != "" {
					vars["trigger"] = e.trigger
				}
				interpretEach(e, s, loops, vars)
			}
		}
		p.checks = append(p.checks, c)
	}
	for name := range inGo {
		if s, c, _ := strings.Cut(name, "/"); s == sentence && !p.names[c] {
			p.failf(1, "the case %s in Go is not listed", c)
		}
	}
	return p.checks, nil
}

// lines returns the statements of a script, without its head: the contract's sentence in lines that begin with >.
func (p *parser) lines(text string) []*statement {
	root := &statement{}
	open := []*statement{root} // by depth
	head := false
	for i, raw := range strings.Split(text, "\n") {
		if strings.HasPrefix(raw, ">") {
			head = true
			continue
		}
		body := strings.TrimLeft(raw, "\t")
		depth := len(raw) - len(body)
		words, err := split(body)
		if err != nil {
			p.failf(i+1, "%v", err)
		}
		if len(words) == 0 {
			continue
		}
		if !head {
			p.failf(i+1, "the script does not begin with the contract's sentence, in lines that begin with >")
		}
		if depth >= len(open) {
			p.failf(i+1, "indented by %d, and the line above is not", depth)
		}
		s := &statement{line: i + 1, text: strings.TrimSpace(body), words: words}
		above := open[depth]
		if depth > 1 && !above.opens() {
			p.failf(i+1, "indented below %q, which has no block", above.text)
		}
		above.block = append(above.block, s)
		open = append(open[:depth+1], s)
	}
	return root.block
}

// opens reports whether a statement has a block.
func (s *statement) opens() bool {
	return s.mustOpen() || s.words[0] == "woken" || s.words[0] == "received"
}

func (s *statement) mustOpen() bool {
	verbs := []string{"for", "repeat", "until", "if", "unless", "together", "steady"}
	return slices.Contains(verbs, s.words[0])
}

// split returns the words of a line. A quoted text is a word, and so are ";" and ",". A # begins a comment.
func split(line string) (words []string, err error) {
	for {
		line = strings.TrimLeft(line, " \t")
		switch {
		case line == "" || line[0] == '#':
			return words, nil
		case line[0] == '"':
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, fmt.Errorf("a text without its end: %s", line)
			}
			words, line = append(words, q), line[len(q):]
			continue
		case line[0] == ';' || line[0] == ',':
			words, line = append(words, line[:1]), line[1:]
			continue
		}
		n := strings.IndexAny(line, " \t;,")
		if n < 0 {
			n = len(line)
		}
		words, line = append(words, line[:n]), line[n:]
	}
}

// verify checks what can be known of a case before it runs: its verbs, and how many words each has.
func (p *parser) verify(c *statement, loops [][]string) {
	vars := map[string]string{} // the first value of each
	enter := func(loop []string) {
		if len(loop) > 3 {
			vars[loop[1]] = loop[3]
			if list := loopNames[loop[3]]; list != nil {
				vars[loop[1]] = list[0]
			}
		}
	}
	for _, loop := range loops {
		enter(loop)
	}
	var walk func(block []*statement)
	walk = func(block []*statement) {
		for _, s := range block {
			words := s.words
			if words[0] == "for" || words[0] == "together" {
				enter(words)
			}
			if strings.HasSuffix(words[0], ":") { // a port
				words = words[1:]
			}
			if len(s.block) == 0 && s.mustOpen() {
				p.failf(s.line, "%s without a block", words[0])
			}
			for _, part := range lists(words, ";") {
				if len(part) == 0 {
					p.failf(s.line, "no verb")
				}
				name := expand(part[0], vars)
				v, ok := verbs[name]
				if !ok {
					p.failf(s.line, "unknown verb %q", name)
				}
				if n := len(part) - 1; n < v.least {
					p.failf(s.line, "%s needs %d words, got %d", name, v.least, n)
				}
			}
			walk(s.block)
		}
	}
	walk(c.block)
}
