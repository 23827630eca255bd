package sse

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
)

// A parser reads a stream as a browser does (HTML, 9.2.6).
type parser struct {
	in    *bufio.Reader
	lastR bool // the line before has ended with a CR
	id    string
	retry string
}

func newParser(r io.Reader) *parser { return &parser{in: bufio.NewReader(r)} }

// A received is an event that a page gets.
type received struct{ name, data, id string }

// line reads a line, which ends with LF, CR or both.
func (p *parser) line() (string, error) {
	var b strings.Builder
	for {
		c, err := p.in.ReadByte()
		if err != nil {
			return "", err
		}
		after := p.lastR
		p.lastR = c == '\r'
		switch {
		case c == '\n' && after:
			continue
		case c == '\n', c == '\r':
			return b.String(), nil
		}
		b.WriteByte(c)
	}
}

// next returns the next event.
func (p *parser) next() (e received, err error) {
	var data []string
	for {
		line, err := p.line()
		if err != nil {
			return e, err
		}
		if line == "" {
			if data == nil {
				e.name = ""
				continue
			}
			e.data, e.id = strings.Join(data, "\n"), p.id
			return e, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				p.id = value
			}
		case "retry":
			p.retry = value
		}
	}
}

func TestAppend(t *testing.T) {
	for want, e := range map[string]Event{
		"data: \n\n":                             {},
		"data: a\ndata: b\ndata: \ndata: c\n\n":  {Data: "a\r\nb\r\rc"},
		"id: 7\nevent: tick\ndata:  x\n\n":       {ID: "7", Name: "tick", Data: " x"},
		"retry: 1500\n\n":                        {Retry: 1500 * time.Millisecond},
		"retry: 1\nid: 1\ndata: \n\n":            {Retry: time.Millisecond, ID: "1"},
		"data: a\ndata: event: b\ndata: \n\n":    {Data: "a\nevent: b\n"},
		"data: \u2028data: x\x00\ndata: : y\n\n": {Data: "\u2028data: x\x00\n: y"},
	} {
		if b, err := Append([]byte("before"), e); err != nil || string(b) != "before"+want {
			t.Errorf("%+v: %q, %v, want %q", e, b, err, want)
		}
	}
	for _, e := range []Event{{ID: "1\ndata: x"}, {ID: "1\r"}, {ID: "\x00"}, {Name: "a\n"}, {Name: "\ra"}, {Retry: -1}} {
		if b, err := Append([]byte("before"), e); !errors.Is(err, socknotify.ErrInvalid) || string(b) != "before" {
			t.Errorf("%+v: %q, %v", e, b, err)
		}
		if _, err := Prepare(e); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
		if err := new(Conn).Send(e); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// Whatever an event has, a browser gets that event, and no other field.
func FuzzAppend(f *testing.F) {
	f.Add("1", "tick", "a\r\nb", int64(3))
	f.Add("", "", "\n\ndata: x\rid: 2\r\n\r\n", int64(0))
	f.Add("x\x00", "a\rb", ": \u2028", int64(-1))
	f.Fuzz(func(t *testing.T, id, name, data string, retry int64) {
		e := Event{ID: id, Name: name, Data: data, Retry: time.Duration(retry)}
		b, err := Append(nil, e)
		if invalid := strings.ContainsAny(id, "\r\n\x00") || strings.ContainsAny(name, "\r\n") || retry < 0; invalid {
			if err == nil {
				t.Fatalf("%q was taken", e)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ = Append(b, Event{Data: "the next one"})
		p := newParser(strings.NewReader(string(b)))
		if e != (Event{Retry: e.Retry}) || retry == 0 {
			want := received{name, strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data), id}
			if got, err := p.next(); err != nil || got != want {
				t.Errorf("%q: %q, %v, want %q", b, got, err, want)
			}
		}
		if got, err := p.next(); err != nil || got != (received{"", "the next one", id}) {
			t.Errorf("%q: then %q, %v", b, got, err)
		}
		if _, err := p.next(); err != io.EOF {
			t.Errorf("%q: more than two events: %v", b, err)
		}
	})
}
