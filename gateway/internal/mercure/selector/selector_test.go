package selector

import (
	"errors"
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		selector    string
		yes, no     []string
		notTemplate bool
	}{
		{"*", []string{"a", "https://a.example/"}, nil, false},
		{"a", []string{"a"}, []string{"", "A", "ab", "a/"}, true},
		{"a}", []string{"a}"}, []string{"a"}, true},
		{"{a}", []string{"{a}", "", "x", "a%2Fb", "a,b"}, []string{"a/b", "a b", "é", "%2", "a?"}, false},
		{"/b/{id}", []string{"/b/1", "/b/", "/b/{id}"}, []string{"/b", "/b/1/2", "/b/1?x", "x/b/1"}, false},
		{"/{a,b}/c", []string{"//c", "/1/c", "/1,2/c"}, []string{"/1/2/c"}, false},
		{"/{a}/{b}", []string{"/x/y", "//"}, []string{"/x", "/x/y/z"}, false},
		{"{+p}/end", []string{"/a/b/end", "/end/end", "http://h/?q=1/end"}, []string{"/a/b/ende", "a b/end"}, false},
		{"a{#f}", []string{"a", "a#x/y"}, []string{"ax"}, false},
		{"a{.x,y}", []string{"a", "a.1", "a.1.2"}, []string{"a/1"}, false},
		{"a{/x,y}", []string{"a", "a/1", "a/1/2", "a//2"}, []string{"a/1/2/3", "a1"}, false},
		{"a{/x*}", []string{"a", "a/1/2/3", "a/k=v"}, []string{"a/1?"}, false},
		{"a{;x,y}", []string{"a", "a;x", "a;x=1", "a;y=2", "a;x=1;y=2"}, []string{"a;z=1", "a;y=1;x=2"}, false},
		{"u/{?topic}", []string{"u/", "u/?topic=", "u/?topic=https%3A%2F%2Fa"}, []string{"u/?other=1", "u/?topic", "u/?topic=a&b=c", "u/?topic=a/b"}, false},
		{"u{?a,b}", []string{"u?a=1&b=2", "u?b=2", "u?a=1"}, []string{"u?a=1b=2", "u&b=2"}, false},
		{"u?x{&a}", []string{"u?x", "u?x&a=1"}, []string{"u?xa=1"}, false},
		{"{a:2}", []string{"", "ab", "%C3%A9x"}, []string{"abc", "%C3%A9xy"}, false},
		{"x{a:2}y{b}", []string{"xaby", "xyyy"}, []string{"xaaay"}, false},
		{"{", []string{"{"}, []string{""}, true},
		{"{}", []string{"{}"}, []string{""}, true},
		{"{=a}", []string{"{=a}"}, []string{"x"}, true},
		{"{a b}", []string{"{a b}"}, []string{"x"}, true},
		{"{a:0}", []string{"{a:0}"}, []string{""}, true},
		{"{a..b}", []string{"{a..b}"}, []string{""}, true},
		{"{a.b}", []string{"x"}, []string{"/"}, false},
	} {
		s, err := Parse(c.selector)
		if err != nil {
			t.Fatalf("%s: %v", c.selector, err)
		}
		if s.Template() == c.notTemplate {
			t.Errorf("%s: Template is %v", c.selector, s.Template())
		}
		for _, topic := range c.yes {
			if !s.Matches(topic) {
				t.Errorf("%s does not match %q", c.selector, topic)
			}
		}
		for _, topic := range c.no {
			if s.Matches(topic) {
				t.Errorf("%s matches %q", c.selector, topic)
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	for _, text := range []string{"", "a\nb", "\x00", "\xff", "a\u0085", strings.Repeat("a", MaxLength+1),
		strings.Repeat("{a}", maxNames+1)} {
		if _, err := Parse(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	s, err := Parse("{a}")
	if err != nil || s.Matches(strings.Repeat("a", MaxLength+1)) {
		t.Error("a topic that is too long matches")
	}
}

// FuzzMatches compares templates of simple variables with a matcher that tries every division.
func FuzzMatches(f *testing.F) {
	for _, s := range [][2]string{{"a/{b}", "a/x"}, {"{a}{b}/{c}", "x/y"}, {"{a", "{a"}, {"{a:1}b", "ab"},
		{"{?a,b}", "?a=1&b=2"}, {"{+a}/{b}", "x/y/z"}, {"{", "x"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, text, topic string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		got := s.Matches(topic)
		if text == topic && !got {
			t.Fatalf("%q does not match itself", text)
		}
		if s.all || s.text == topic || s.parts == nil || len(topic) > 16 || len(s.parts) > 5 {
			return
		}
		for _, p := range s.parts {
			if p.form != nil && (p.form.named || p.form.first != "" || len(p.names) > 1 || p.names[0].most > 0) {
				return
			}
		}
		if want := divide(s.parts, topic); got != want {
			t.Fatalf("%q and %q: %v, want %v", text, topic, got, want)
		}
	})
}

// divide reports whether the parts can be written as a topic, by trying each end of the first one.
func divide(parts []part, topic string) bool {
	if len(parts) == 0 {
		return topic == ""
	}
	p := parts[0]
	if p.form == nil {
		rest, ok := strings.CutPrefix(topic, p.literal)
		return ok && divide(parts[1:], rest)
	}
	extra := ","
	if p.names[0].explode {
		extra = "=,"
	}
	for end := 0; ; {
		if divide(parts[1:], topic[end:]) {
			return true
		}
		if end == len(topic) {
			return false
		}
		width, _ := p.form.next(topic[end:], extra)
		if width == 0 {
			return false
		}
		end += width
	}
}
