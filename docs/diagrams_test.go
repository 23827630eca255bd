package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

var (
	flowHead = regexp.MustCompile(`^(?:flowchart|graph) (?:TB|TD|BT|LR|RL)$`)
	// A node is a name, with a text in brackets where it is met first.
	flowNode = `\w+(?:\(\["[^"]*"\]\)|\[\("[^"]*"\)\]|\[\["[^"]*"\]\]|\{\{"[^"]*"\}\}|\["[^"]*"\]|\("[^"]*"\)|\{"[^"]*"\})?`
	flowLink = `(?:-->|-\.->|==>|---)(?:\|"[^"|]+"\|)?`
	flowLine = regexp.MustCompile(`^` + flowNode + `(?: ` + flowLink + ` ` + flowNode + `)*$`)
	flowOpen = regexp.MustCompile(`^subgraph \w+(?:\["[^"]*"\])?$`)
	// Names that the language has for itself, where a node's begins.
	flowWord = regexp.MustCompile(`(?:^|[>|] )(?:call|class|classDef|click|default|end|graph|href|linkStyle|style|subgraph)\b`)
	flowSide = regexp.MustCompile(`^direction (?:TB|TD|BT|LR|RL)$`)

	stateEnd  = `(?:\w+|\[\*\])`
	stateLine = regexp.MustCompile(`^` + stateEnd + ` --> ` + stateEnd + `(?:: [^:;#]+)?$`)
	stateOpen = regexp.MustCompile(`^state (?:"[^"]+" as )?\w+ \{$`)
	stateName = regexp.MustCompile(`^state "[^"]+" as \w+$`)
	stateText = regexp.MustCompile(`^\w+: [^:;#]+$`)

	sequenceWho  = regexp.MustCompile(`^(?:participant|actor) (\w+)(?: as [^:;#]+)?$`)
	sequenceLine = regexp.MustCompile(`^(\w+)(?:->>|-->>|-\)|--\))[+-]?(\w+): [^;#]+$`)
	sequenceNote = regexp.MustCompile(`^Note (?:over|left of|right of) (\w+)(?:,(\w+))?: [^;#]+$`)
	sequenceOpen = regexp.MustCompile(`^(?:alt|opt|loop|par|rect)(?: [^;#]+)?$`)
	sequenceElse = regexp.MustCompile(`^(?:else|and)(?: [^;#]+)?$`)
)

// checkDiagrams checks that diagrams are of the forms used here, which are a small part of Mermaid's.
func checkDiagrams(t *testing.T, p *page) {
	for _, b := range p.blocks {
		if b.lang != "mermaid" {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(b.text, "\n"), "\n")
		read, depth := diagram(strings.TrimSpace(lines[0])), 0
		if read == nil {
			p.fault(b.line+1, "no kind of diagram: %s", lines[0])
			continue
		}
		for i, line := range lines[1:] {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "%%") {
				continue
			}
			step, fault := read(line)
			if depth += step; depth < 0 {
				fault, depth = "nothing is open that could end", 0
			}
			if fault != "" {
				p.fault(b.line+2+i, "%s: %s", fault, line)
			}
		}
		if depth > 0 {
			p.fault(b.line, "the diagram does not end what it has begun")
		}
	}
}

// diagram returns what reads the lines of a kind of diagram: by how much a line goes deeper, or what is wrong with it.
func diagram(head string) func(line string) (step int, fault string) {
	const wrong = "not of the form"
	switch {
	case flowHead.MatchString(head):
		return func(line string) (int, string) {
			switch {
			case line == "end":
				return -1, ""
			case flowOpen.MatchString(line):
				return 1, ""
			case flowWord.MatchString(line):
				return 0, "a word of the language is no name"
			case flowLine.MatchString(line) || flowSide.MatchString(line):
				return 0, ""
			}
			return 0, wrong
		}
	case head == "stateDiagram-v2":
		return func(line string) (int, string) {
			switch {
			case line == "}":
				return -1, ""
			case stateOpen.MatchString(line):
				return 1, ""
			case stateLine.MatchString(line) || stateName.MatchString(line) || stateText.MatchString(line):
				return 0, ""
			}
			return 0, wrong
		}
	case head == "sequenceDiagram":
		known := map[string]bool{"": true}
		return func(line string) (int, string) {
			if m := sequenceWho.FindStringSubmatch(line); m != nil {
				known[m[1]] = true
				return 0, ""
			}
			for _, form := range []*regexp.Regexp{sequenceLine, sequenceNote} {
				if m := form.FindStringSubmatch(line); m != nil {
					if !known[m[1]] || !known[m[2]] {
						return 0, "nobody is introduced by this name"
					}
					return 0, ""
				}
			}
			switch {
			case line == "end":
				return -1, ""
			case sequenceOpen.MatchString(line):
				return 1, ""
			case sequenceElse.MatchString(line):
				return 0, ""
			}
			return 0, wrong
		}
	}
	return nil
}
