// Package selector has the topic selectors of the Mercure protocol: strings that match topics.
package selector

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a selector. They bound the time of Matches: it is proportional to the length of the
// topic, times the number of the selector's literals and variables.
const (
	MaxLength = 1024 // bytes of a selector, and of a topic
	maxNames  = 32   // variables of a selector
)

// ErrInvalid is returned for a selector or a topic that is not UTF-8, has control characters, or is
// beyond a limit.
var ErrInvalid = errors.New("invalid topic")

// A Selector matches topics. It does not change, and may be used concurrently.
type Selector struct {
	text  string
	all   bool
	parts []part // of a URI template with variables
}

// A part of a URI template is a literal, or an expression with variables.
type part struct {
	literal string
	form    *form
	names   []name
}

// A name is a variable of an expression.
type name struct {
	text    string
	most    int // characters of the value; 0 is no limit
	explode bool
}

// A form says how an operator writes the variables of its expression (RFC 6570, appendix A).
type form struct {
	first, between string
	named          bool
	ifEmpty        string // what follows the name of an empty value
	reserved       bool   // values have reserved characters as they are
}

var forms = map[byte]*form{
	0:   {between: ","},
	'+': {between: ",", reserved: true},
	'#': {first: "#", between: ",", reserved: true},
	'.': {first: ".", between: "."},
	'/': {first: "/", between: "/"},
	';': {first: ";", between: ";", named: true},
	'?': {first: "?", between: "&", named: true, ifEmpty: "="},
	'&': {first: "&", between: "&", named: true, ifEmpty: "="},
}

// Check reports what is wrong with a topic.
func Check(topic string) error {
	switch {
	case topic == "" || len(topic) > MaxLength:
		return fmt.Errorf("%w: want 1 to %d bytes", ErrInvalid, MaxLength)
	case !utf8.ValidString(topic):
		return fmt.Errorf("%w: not UTF-8", ErrInvalid)
	case strings.ContainsFunc(topic, unicode.IsControl):
		return fmt.Errorf("%w: control character", ErrInvalid)
	}
	return nil
}

// Parse returns the selector of a text. A text that is no URI template matches itself alone.
func Parse(text string) (*Selector, error) {
	if err := Check(text); err != nil {
		return nil, err
	}
	s := &Selector{text: text, all: text == "*"}
	if !strings.Contains(text, "{") {
		return s, nil
	}
	names := 0
	for rest := text; rest != ""; {
		before, after, more := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return &Selector{text: text}, nil
		}
		if before != "" {
			s.parts = append(s.parts, part{literal: before})
		}
		if !more {
			break
		}
		inside, after, closed := strings.Cut(after, "}")
		p, ok := parseExpression(inside)
		if !closed || !ok {
			return &Selector{text: text}, nil
		}
		if names += len(p.names); names > maxNames {
			return nil, fmt.Errorf("%w: more than %d variables", ErrInvalid, maxNames)
		}
		s.parts, rest = append(s.parts, p), after
	}
	return s, nil
}

// parseExpression parses what is between braces.
func parseExpression(s string) (p part, ok bool) {
	operator := byte(0)
	if s != "" && strings.IndexByte("+#./;?&", s[0]) >= 0 {
		operator, s = s[0], s[1:]
	}
	p.form = forms[operator]
	for one := range strings.SplitSeq(s, ",") {
		n, ok := parseName(one)
		if !ok {
			return p, false
		}
		p.names = append(p.names, n)
	}
	return p, true
}

// parseName parses a variable with its modifier.
func parseName(s string) (n name, ok bool) {
	n.text = s
	if before, digits, cut := strings.Cut(s, ":"); cut {
		if n.text = before; digits == "" || len(digits) > 4 || digits[0] == '0' {
			return n, false
		}
		for _, d := range []byte(digits) {
			if d < '0' || d > '9' {
				return n, false
			}
			n.most = 10*n.most + int(d-'0')
		}
	} else if before, cut := strings.CutSuffix(s, "*"); cut {
		n.text, n.explode = before, true
	}
	for i := 0; i < len(n.text); {
		switch c := n.text[i]; {
		case triplet(n.text[i:]):
			i += 3
		case letterOrDigit(c), c == '_', c == '.' && i > 0 && i+1 < len(n.text) && n.text[i-1] != '.':
			i++
		default:
			return n, false
		}
	}
	return n, n.text != ""
}

// String returns the text of the selector.
func (s *Selector) String() string { return s.text }

// Template reports whether the selector may match other topics than its own text.
func (s *Selector) Template() bool { return s.all || s.parts != nil }

// A places has true for each offset of a topic that a beginning of the template can end at.
type places [MaxLength + 1]bool

// Matches reports whether the selector matches a topic: if it is *, if it is the topic itself, and
// if the topic is an expansion of it as a URI template.
//
// It goes through the template once, with all offsets that are possible so far. So the time has a
// bound, whatever the two are.
func (s *Selector) Matches(topic string) bool {
	if s.all || s.text == topic {
		return true
	}
	if s.parts == nil || len(topic) > MaxLength || !strings.HasPrefix(topic, s.parts[0].literal) {
		return false
	}
	var at places
	at[0] = true
	for i := range s.parts {
		if p := &s.parts[i]; p.form == nil {
			at = at.literal(topic, p.literal)
		} else {
			at = p.expand(topic, &at)
		}
	}
	return at[len(topic)]
}

// literal returns where a literal can end.
func (p *places) literal(topic, literal string) (ends places) {
	for i := 0; i+len(literal) <= len(topic); i++ {
		if p[i] && strings.HasPrefix(topic[i:], literal) {
			ends[i+len(literal)] = true
		}
	}
	return ends
}

// add adds the places of another set.
func (p *places) add(other *places, length int) {
	for i := range length + 1 {
		p[i] = p[i] || other[i]
	}
}

// expand returns where an expression can end. A variable without a value writes nothing, so an
// expression may be empty.
func (p *part) expand(topic string, none *places) places {
	var some places // where it can end after at least one variable
	for i := range p.names {
		begin := none.literal(topic, p.form.first)
		between := some.literal(topic, p.form.between)
		begin.add(&between, len(topic))
		end := p.form.value(topic, &p.names[i], &begin)
		some.add(&end, len(topic))
	}
	some.add(none, len(topic))
	return some
}

// value returns where a variable with its name can end.
func (f *form) value(topic string, n *name, begin *places) places {
	extra := ","
	switch {
	case n.explode:
		extra = "=" + f.between
	case n.most > 0:
		extra = ""
	}
	if !f.named {
		return f.run(topic, n.most, extra, begin)
	}
	if n.explode { // the values of a list with the name, or the pairs of an associative array
		return f.run(topic, 0, extra, begin)
	}
	named := begin.literal(topic, n.text)
	empty := named.literal(topic, f.ifEmpty)
	equals := named.literal(topic, "=")
	end := f.run(topic, n.most, extra, &equals)
	end.add(&empty, len(topic))
	return end
}

// run returns where a value can end that has at most so many characters, unless most is 0.
func (f *form) run(topic string, most int, extra string, begin *places) places {
	end := *begin
	var used [MaxLength + 1]int // the fewest characters of a value that ends there
	for i := range len(topic) {
		if !end[i] {
			continue
		}
		width, characters := f.next(topic[i:], extra)
		if width == 0 || most > 0 && used[i]+characters > most {
			continue
		}
		if to := i + width; !end[to] || !begin[to] && used[i]+characters < used[to] {
			end[to], used[to] = true, used[i]+characters
		}
	}
	return end
}

// next returns the bytes that the first character of a value takes, or 0 if it cannot be one.
// The bytes of UTF-8 are triplets of which all but the first count as no character.
func (f *form) next(s, extra string) (width, characters int) {
	c := s[0]
	switch {
	case triplet(s):
		if c := s[1]; c == '8' || c == '9' || c|0x20 == 'a' || c|0x20 == 'b' {
			return 3, 0
		}
		return 3, 1
	case letterOrDigit(c), strings.IndexByte("-._~", c) >= 0, strings.IndexByte(extra, c) >= 0,
		f.reserved && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0:
		return 1, 1
	}
	return 0, 0
}

// triplet reports whether s begins with a byte in the form %2F.
func triplet(s string) bool { return len(s) >= 3 && s[0] == '%' && hex(s[1]) && hex(s[2]) }

func hex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func letterOrDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
