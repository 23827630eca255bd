package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/sock"
)

// A watched is a port with a debug page.
type watched struct {
	port *socknotify.Port[int]
	url  string
	addr string
}

// watch registers sockets with a port, and mounts it on a page beside an empty port.
func watch(t *testing.T, sockets int) *watched {
	t.Helper()
	backendtest.Need(t)
	open := func() *socknotify.Port[int] {
		p, err := socknotify.New[int]()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	p := open()
	// A key may contain control sequences of a terminal.
	page := debug.New(debug.Port("first", p, func(k int) string { return fmt.Sprintf("key-%02d\x1b[2J", k) }), debug.Port("second", open()))
	t.Cleanup(page.Close)
	mux := http.NewServeMux()
	mux.Handle(debugPath, page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w := &watched{p, server.URL + debugPath, server.Listener.Addr().String()}
	for i := range sockets {
		w.register(t, i)
	}
	return w
}

func (w *watched) register(t *testing.T, key int) *sock.Socket {
	t.Helper()
	s, err := sock.New(sock.UDP4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	regs := []socknotify.Registration[int]{socknotify.Enable(s, key, socknotify.EventOut, socknotify.TriggerLevel|socknotify.TriggerOneShot)}
	if _, err := w.port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		t.Fatal(err, regs[0].Result)
	}
	return s
}

func TestTopOnce(t *testing.T) {
	w := watch(t, 3)
	for _, where := range []string{w.addr, w.url, strings.TrimSuffix(w.url, "/")} {
		status, out, errs := sh(t, "top", where)
		if status != 0 || errs != "" {
			t.Fatalf("%s: status %d: %s", where, status, errs)
		}
		for _, want := range []string{"first at " + w.addr, "registrations 3 ", "key-00·[2J", "key-02·", "enabled", "1-3 of 3"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", where, want, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("a command for the terminal: %q", out)
		}
	}
	if status, out, _ := sh(t, "top", w.addr, "--port", "second"); status != 0 || !strings.Contains(out, "registrations 0 ") {
		t.Errorf("the other port: status %d\n%s", status, out)
	}
}

func TestDebugClientUsage(t *testing.T) {
	w := watch(t, 0)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"top"}, 2, "arg"},
		{[]string{"top", "ftp://x/"}, 2, "http"},
		{[]string{"top", w.addr, "--interval", "1ms"}, 2, "--interval 1ms"},
		{[]string{"top", w.addr, "--port", "third"}, 1, `"third"`},
		{[]string{"top", other.URL}, 1, "is it a socknotify debug page?"},
		{[]string{"top", "127.0.0.1:1"}, 1, "refused"},
		{[]string{"trace"}, 2, "arg"},
		{[]string{"trace", "://"}, 2, "debug page"},
		{[]string{"trace", w.addr, "--count", "-1"}, 2, "--count -1"},
		{[]string{"trace", w.addr}, 1, "port is missing"},
		{[]string{"trace", w.addr, "--port", "first", "--kind", "odd"}, 2, "--kind odd"},
		{[]string{"trace", other.URL}, 1, "is it a socknotify debug page?"},
		{[]string{"serve", "echo", "--debug-addr", "nonsense"}, 2, "--debug-addr nonsense"},
		{[]string{"serve", "echo", "--debug-addr", "0.0.0.0:0"}, 2, "loopback"},
		{[]string{"serve", "echo", "--debug-addr", ":0"}, 2, "loopback"},
		{[]string{"serve", "echo", "--debug-addr", w.addr}, 1, "bind"},
	} {
		status, _, errs := sh(t, c.args...)
		if status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, errs)
		}
	}
}

func TestTrace(t *testing.T) {
	w := watch(t, 0)
	for _, asJSON := range []bool{false, true} {
		args := []string{"trace", w.addr, "--port", "first", "--count", "2"}
		if asJSON {
			args = append(args, "--json")
		}
		type result struct {
			status    int
			out, errs string
		}
		done := make(chan result, 1)
		go func() {
			status, out, errs := sh(t, args...)
			done <- result{status, out, errs}
		}()
		// The trace may not have begun yet, so there are events until it has had enough.
		s := w.register(t, 42)
		var got result
		for looking := true; looking; {
			select {
			case got = <-done:
				looking = false
			case <-time.After(10 * time.Millisecond):
				regs := []socknotify.Registration[int]{socknotify.Enable(s, 42, socknotify.EventOut, socknotify.TriggerLevel|socknotify.TriggerOneShot)}
				w.port.Process(regs, make([]socknotify.Notification[int], 1), 0)
			}
		}
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if got.status != 0 || got.errs != "" || len(lines) != 2 {
			t.Fatalf("%+v", got)
		}
		last := lines[1]
		if asJSON {
			var e debug.Event
			decode(t, last, &e)
			if e.Kind != "notified" || e.Socket != uint64(s.Handle()) || e.Events != "OUT" || e.Key != "key-42\x1b[2J" {
				t.Errorf("%+v", e)
			}
			continue
		}
		for _, want := range []string{"notified", fmt.Sprintf(" %d ", s.Handle()), "OUT", "key-42·[2J"} {
			if !strings.Contains(last, want) {
				t.Errorf("no %q in %q", want, last)
			}
		}
		if strings.Contains(got.out, "\x1b") {
			t.Errorf("a command for the terminal: %q", got.out)
		}
	}
}

// A trace exits with status 0 after an interrupt, and with 1 when the port is closed.
func TestTraceEnds(t *testing.T) {
	w := watch(t, 0)
	for _, interrupted := range []bool{true, false} {
		ctx, interrupt := context.WithCancel(t.Context())
		var errs bytes.Buffer
		r, out := io.Pipe()
		done := make(chan int, 1)
		go func() {
			done <- run(ctx, []string{"trace", w.addr, "--port", "first"}, out, &errs)
			out.Close()
		}()
		stop := make(chan struct{})
		go func() { // until the trace has begun
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					w.port.Post(1, 2)
					w.port.Process(nil, make([]socknotify.Notification[int], 1), 0)
				}
			}
		}()
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		close(stop)
		go io.Copy(io.Discard, r)
		if interrupted {
			interrupt()
		} else {
			w.port.Close()
		}
		if status := <-done; status != map[bool]int{true: 0, false: 1}[interrupted] || interrupted != (errs.Len() == 0) {
			t.Errorf("interrupted %t: status %d, %s", interrupted, status, &errs)
		}
		interrupt()
	}
}

func TestTraceLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 60e6, time.Local)
	for _, c := range []struct {
		e    debug.Event
		want string
	}{
		{debug.Event{Kind: "missed", Missed: 7}, "03:04:05.06  7 missed"},
		{debug.Event{Kind: "posted", Data: 9}, "03:04:05.06  posted      data 9"},
		{debug.Event{Kind: "notified", Socket: 5, Events: "IN", Local: "a", Remote: "b", Key: "k\n"}, "03:04:05.06  notified         5  IN             a < b  k·"},
	} {
		c.e.Time = at
		if got := traceLine(&c.e); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

func TestDecodeKeys(t *testing.T) {
	for in, want := range map[string][]string{
		"q": {"q"}, "\x1b": {"esc"}, "\x1b[A\x1b[B": {"up", "down"}, "\x1bOC": {"right"}, "\x1b[6~": {"pgdn"},
		"/aé\r": {"/", "a", "é", "enter"}, "\x03": {"ctrl-c"}, "\x1b[99;5u": nil, "\x01\xff": nil, "\x7f\t ": {"back", "tab", " "},
	} {
		if got := decodeKeys([]byte(in)); !slices.Equal(got, want) {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
}

// A frame fits into any window, and no line is wider than it.
func TestTopFits(t *testing.T) {
	w := watch(t, 30)
	c, err := newDebugClient(w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	m := &topModel{where: "x", sort: "key", order: "asc", rows: 100}
	m.show(c.fetch(t.Context(), m.query()))
	if m.err != nil {
		t.Fatal(m.err)
	}
	for _, width := range []int{0, 1, 20, 60, 80, 100, 132, 200, 400} {
		for _, height := range []int{0, 1, 2, 9, 24, 60} {
			lines := m.frame(width, height)
			if len(lines) > max(height, 1) {
				t.Errorf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > width {
					t.Errorf("%dx%d: %q is %d wide", width, height, l, utf8.RuneCountInString(l))
				}
			}
		}
	}
	// A narrow window has more lines of counts, and none is cut.
	m.now.status.Rates.Completions = 12345
	for _, width := range []int{24, 40, 80, 132, 400} {
		text := strings.Join(m.frame(width, 60), "\n")
		for _, count := range []string{"registrations 30", "notifications/s 0", "enables/s 0", "saved –", "wake-ups/s ", "queued 0",
			"asleep 0", "accepted/s 0", "completed/s 12345", "removals/s 0", "posts/s 0", "stale/s 0"} {
			if !strings.Contains(text, count) {
				t.Errorf("%d wide: no %q in:\n%s", width, count, text)
			}
		}
		// The foot names the registrations that are shown. Some are shown in a low window too.
		for _, height := range []int{10, 12, 24, 36} {
			lines, fit := m.frame(width, height), m.fit(width, height)
			shown := len(lines) - len(m.header(width, height)) - 2
			if want := fmt.Sprintf("1-%d of 30", fit); shown != fit || !strings.HasPrefix(lines[len(lines)-1], want) {
				t.Errorf("%dx%d: %d registrations fit, %d are shown, and it ends in %q", width, height, fit, shown, lines[len(lines)-1])
			}
		}
	}
	if text := strings.Join(m.frame(200, 60), "\n"); !strings.Contains(text, "trigger") || !strings.Contains(text, "level one-shot") {
		t.Errorf("a wide window has no room for the trigger:\n%s", text)
	}
	if text := strings.Join(m.frame(60, 60), "\n"); strings.Contains(text, "trigger") || !strings.Contains(text, "key-29") {
		t.Errorf("a narrow window:\n%s", text)
	}
}

// A screen is the output of top, and its keyboard.
type screen struct {
	mu   sync.Mutex
	last string
	keys *io.PipeWriter
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = string(b)
	return len(b), nil
}

// until waits until a frame has a text, or has it no longer.
func (s *screen) until(t *testing.T, text string, has bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		if strings.Contains(last, text) == has {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q still %t:\n%s", text, !has, strings.ReplaceAll(last, "\x1b", "ESC"))
		}
	}
}

func (s *screen) press(keys string) { io.WriteString(s.keys, keys) }

func TestTopScreen(t *testing.T) {
	w := watch(t, 30)
	c, err := newDebugClient(w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	in, keys := io.Pipe()
	defer in.Close()
	out := &screen{keys: keys}
	m := &topModel{where: w.addr, sort: "key", order: "asc", rows: 10}
	s := &topScreen{client: c, model: m, interval: 20 * time.Millisecond, out: out, in: in, size: func() (int, int) { return 120, len(m.header(120, 40)) + 12 }}
	done := make(chan error, 1)
	go func() { done <- s.loop(t.Context()) }()

	out.until(t, "1-10 of 30", true)
	out.until(t, "key-09·", true)
	out.press("n")
	out.until(t, "11-20 of 30", true)
	out.press("\x1b[6~")
	out.until(t, "21-30 of 30", true)
	out.press("n") // there is no further page
	out.press("p")
	out.until(t, "11-20 of 30", true)
	out.press("r")
	out.until(t, "key-29·", true)
	out.press("/key-17")
	out.until(t, "1-1 of 1 (30 in all)", true)
	out.until(t, "search: key-17_", true)
	out.press("\r")
	out.until(t, "search: key-17_", false)
	out.press("\x1b")
	out.until(t, "1-10 of 30", true)
	out.press("s")
	out.until(t, "by local", true)
	out.press(" ")
	out.until(t, "paused", true)
	out.press(" ")
	out.until(t, "live", true)
	w.register(t, 99)
	out.until(t, "of 31", true)
	out.press("\t")
	out.until(t, "second at", true)
	out.until(t, "0-0 of 0", true)
	out.press("\t")
	out.until(t, "first at", true)
	w.port.Close()
	out.until(t, "CLOSED", true)
	out.press("q")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// top reports a server that does not answer, and continues.
func TestTopWithoutAnswer(t *testing.T) {
	m := &topModel{where: "x", sort: "key", order: "asc", rows: 10}
	m.show(update{err: fmt.Errorf("no\x1bway")})
	if text := m.frame(100, 20)[0]; !strings.Contains(text, "NO ANSWER: no·way") {
		t.Error(text)
	}
}

func TestServeWithDebugPage(t *testing.T) {
	backendtest.Need(t)
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"serve", "echo", "--addr", "127.0.0.1:0", "--debug-addr", "127.0.0.1:0"}, io.Discard, w)
		w.Close()
	}()
	url := ""
	log := bufio.NewScanner(r)
	for url == "" && log.Scan() {
		_, url, _ = strings.Cut(log.Text(), "live page on ")
	}
	if url == "" {
		t.Fatal(log.Err())
	}
	go io.Copy(io.Discard, r)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // the page is there before the listener is registered
		status, out, errs := sh(t, "top", url)
		if status == 0 && strings.Contains(out, "accepting") {
			break
		}
		if status != 0 || time.Now().After(end) {
			t.Fatalf("status %d: %s\n%s", status, errs, out)
		}
	}
	interrupt()
	if status := <-done; status != 0 {
		t.Errorf("serve: status %d", status)
	}
}

// The samples of a restarted server replace the earlier ones. Otherwise only later samples are requested.
func TestTopSamples(t *testing.T) {
	m := &topModel{sort: "key", order: "asc", rows: 10}
	look := func(observed int64, numbers ...uint64) {
		s := update{query: query{port: "p"}}
		s.status.Observed = time.Unix(observed, 0)
		for _, n := range numbers {
			s.history.Samples = append(s.history.Samples, debug.Sample{Number: n})
		}
		m.show(s)
	}
	for _, c := range []struct {
		observed int64
		numbers  []uint64
		want     int
		after    string
	}{
		{1, []uint64{0, 1, 2}, 3, "2"},
		{1, []uint64{3}, 4, "3"},
		{2, nil, 0, ""}, // samples after 3 were requested, but the server has fewer
		{2, []uint64{0, 1}, 2, "1"},
	} {
		look(c.observed, c.numbers...)
		if got := m.query().after; len(m.samples) != c.want || got != c.after {
			t.Errorf("%+v: %d samples, and then those after %q", c, len(m.samples), got)
		}
	}
	if m.port = "other"; m.query().after != "" {
		t.Error("another port's samples are numbered on their own")
	}
}
