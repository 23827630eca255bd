package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
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
		for _, want := range []string{"first at " + w.addr, "registrations 3", "key-00·[2J", "key-02·", "enabled", "1-3 of 3"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", where, want, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("a command for the terminal: %q", out)
		}
	}
	if status, out, _ := sh(t, "top", w.addr, "--port", "second"); status != 0 || !strings.Contains(out, "registrations 0") {
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
		{[]string{"trace", w.addr, "--port", "none"}, 1, "no port is named"},
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
	// Without a name the trace is that of all ports, here also of one where nothing happens.
	for _, more := range [][]string{{"--port", "first"}, {"--port", "first", "--json"}, nil} {
		args := append([]string{"trace", w.addr, "--count", "2"}, more...)
		asJSON := len(more) > 2
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
		ticker := time.NewTicker(10 * time.Millisecond)
		for looking := true; looking; {
			select {
			case got = <-done:
				looking = false
			case <-ticker.C:
				regs := []socknotify.Registration[int]{socknotify.Enable(s, 42, socknotify.EventOut, socknotify.TriggerLevel|socknotify.TriggerOneShot)}
				w.port.Process(regs, make([]socknotify.Notification[int], 1), 0)
			}
		}
		ticker.Stop()
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if got.status != 0 || got.errs != "" || len(lines) != 2 {
			t.Fatalf("%+v", got)
		}
		last := lines[1]
		if asJSON {
			var e debugdata.Event
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
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-stop:
					return
				case <-ticker.C:
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
		e    debugdata.Event
		want string
	}{
		{debugdata.Event{Kind: "missed", Missed: 7}, "03:04:05.06  7 missed"},
		{debugdata.Event{Kind: "posted", Data: 9}, "03:04:05.06  posted      data 9"},
		{debugdata.Event{Kind: "notified", Socket: 5, Events: "IN", Local: "a", Remote: "b", Key: "k\n"}, "03:04:05.06  notified         5  IN             a < b  k·"},
	} {
		c.e.Time = at
		if got := traceLine(&c.e); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

// newModel returns a model of a page, with one update.
func newModel(t *testing.T, w *watched, width, height int) *topModel {
	t.Helper()
	c, err := newDebugClient(w.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	m := newTopModel(t.Context(), c, time.Minute)
	m.sort, m.order = "key", "asc"
	m.resize(width, height)
	m.settle(t, m.fetch())
	return m
}

// settle runs commands that fetch, as the program would.
func (m *topModel) settle(t *testing.T, cmd tea.Cmd) {
	t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case update:
		_, next := m.Update(msg)
		m.settle(t, next)
	case tea.BatchMsg:
		for _, c := range msg {
			m.settle(t, c)
		}
	}
}

// press sends keys.
func (m *topModel) pressed(t *testing.T, keys ...string) {
	t.Helper()
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "pgdown": tea.KeyPgDown, "space": tea.KeySpace, "down": tea.KeyDown}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		if code, ok := named[k]; ok {
			msg = tea.KeyPressMsg{Code: code}
		}
		_, cmd := m.Update(msg)
		m.settle(t, cmd)
	}
}

func (m *topModel) want(t *testing.T, texts ...string) {
	t.Helper()
	frame := m.plain()
	for _, text := range texts {
		if !strings.Contains(frame, text) {
			t.Errorf("no %q in\n%s", text, frame)
		}
	}
}

// A frame fits into any window, and no line is wider than it.
func TestTopFits(t *testing.T) {
	w := watch(t, 30)
	m := newModel(t, w, plainWidth, plainHeight)
	if m.err != nil {
		t.Fatal(m.err)
	}
	m.now.Status.Rates.Completions = 12345
	for _, width := range []int{1, 20, 40, 60, 80, 100, 132, 200, 400} {
		for _, height := range []int{1, 2, 9, 12, 24, 60} {
			m.resize(width, height)
			frame := m.View().Content
			if got := lipgloss.Height(frame); got > height {
				t.Errorf("%dx%d: %d lines", width, height, got)
			}
			if got := lipgloss.Width(frame); got > width {
				t.Errorf("%dx%d: %d wide", width, height, got)
			}
		}
		m.resize(width, 60)
		if width < 40 {
			continue
		}
		m.want(t, "registrations 30", "notifications/s 0", "saved –", "asleep 0", "completed/s 12,345", "stale/s 0", "1-30 of 30", "key-29")
		if has := strings.Contains(m.plain(), "trigger"); has != (width >= 200) {
			t.Errorf("%d wide: trigger is shown: %t\n%s", width, has, m.plain())
		}
	}
	// The foot names the registrations that are shown, in a low window too.
	for _, height := range []int{12, 16, 24, 36} {
		m.resize(120, height)
		m.settle(t, m.fetch())
		shown := strings.Count(m.plain(), "key-")
		m.want(t, fmt.Sprintf("1-%d of 30", shown))
		if shown == 0 {
			t.Errorf("%d high: none is shown\n%s", height, m.plain())
		}
	}
}

func TestTopKeys(t *testing.T) {
	w := watch(t, 30)
	m := newModel(t, w, 120, 16)
	page := m.rows()
	if page < 5 || page > 15 {
		t.Fatalf("%d rows", page)
	}
	m.want(t, fmt.Sprintf("1-%d of 30", page), "key-00·[2J")
	m.pressed(t, "n")
	m.want(t, fmt.Sprintf("%d-%d of 30", page+1, min(2*page, 30)))
	m.pressed(t, "pgdown", "pgdown", "pgdown") // there is no further page
	m.want(t, "-30 of 30")
	m.pressed(t, "r")
	m.want(t, "key-29·", "1-", "falling")
	m.pressed(t, "/", "k", "e", "y", "-", "1", "7")
	m.want(t, "1-1 of 1 (30 in all)", "search: key-17")
	m.pressed(t, "q") // is text there
	m.want(t, "0-0 of 0", "key-17q")
	m.pressed(t, "esc")
	m.want(t, "of 30")
	m.pressed(t, "/", "k", "e", "y", "-", "0", "5", "enter")
	m.want(t, "search: key-05", "1-1 of 1")
	m.pressed(t, "esc", "s")
	m.want(t, "by local", "of 30")
	m.pressed(t, "down", "down")
	if m.table.Cursor() != 2 {
		t.Errorf("row %d is marked", m.table.Cursor())
	}
	m.pressed(t, "space")
	m.want(t, "paused")
	m.pressed(t, "space")
	m.want(t, "live")
	short := m.rows()
	m.pressed(t, "?")
	m.want(t, "previous page", "reverses the order")
	if m.rows() >= short {
		t.Error("all keys need no room")
	}
	m.pressed(t, "?", "tab")
	m.want(t, "second at", "0-0 of 0")
	m.pressed(t, "tab")
	m.want(t, "first at")
	w.port.Close()
	m.settle(t, m.fetch())
	m.want(t, "CLOSED")
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not quit")
	} else if _, quits := cmd().(tea.QuitMsg); !quits {
		t.Error("q does not quit")
	}
}

// The whole program draws, and ends with q.
func TestTopProgram(t *testing.T) {
	w := watch(t, 3)
	c, err := newDebugClient(w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	in, keys := io.Pipe()
	out := &screen{}
	done := make(chan error, 1)
	go func() {
		_, err := tea.NewProgram(newTopModel(t.Context(), c, 20*time.Millisecond), tea.WithContext(t.Context()), tea.WithInput(in), tea.WithOutput(out),
			tea.WithWindowSize(120, 30), tea.WithoutSignals(), tea.WithEnvironment([]string{"TERM=xterm-256color"})).Run()
		done <- err
	}()
	out.until(t, "key-02")
	w.register(t, 99)
	out.until(t, "key-99")
	io.WriteString(keys, "q")
	if err := <-done; err != nil {
		t.Error(err)
	}
	in.Close()
}

// A screen is the output of top.
type screen struct {
	mu  sync.Mutex
	all strings.Builder
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

// until waits until a text was drawn.
func (s *screen) until(t *testing.T, text string) {
	t.Helper()
	all := ""
	defer func() {
		if !strings.Contains(all, text) {
			t.Logf("no %q in\n%s", text, strings.ReplaceAll(all, "\x1b", "ESC"))
		}
	}()
	await.Until(t, "a text is drawn", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		all = s.all.String()
		return strings.Contains(all, text)
	})
}

// top reports a server that does not answer, and continues.
func TestTopWithoutAnswer(t *testing.T) {
	m := newTopModel(t.Context(), nil, time.Second)
	m.resize(100, 20)
	m.Update(update{err: fmt.Errorf("no\x1bway")})
	m.want(t, "NO ANSWER: no·way")
	if strings.Contains(m.View().Content, "\x1bway") {
		t.Error("a control character is shown")
	}
}

// A window of 80 columns, and a narrower one, says how it is: long names do not push that out.
func TestTopHealth(t *testing.T) {
	w := watch(t, 3)
	m := newModel(t, w, 80, 24)
	m.port = strings.Repeat("long-name-", 8)
	for _, width := range []int{24, 40, 60, 80} {
		m.resize(width, 24)
		m.err = nil
		m.want(t, "socknotify top  live")
		m.paused = true
		m.want(t, "socknotify top  paused")
		m.paused, m.err = false, errors.New("it is gone")
		if first, _, _ := strings.Cut(m.plain(), "\n"); !strings.Contains(first, "NO ANSWER") && width > 24 {
			t.Errorf("%d wide: %q", width, first)
		}
	}
	m.err = nil
	m.resize(80, 24)
	m.want(t, "goroutines ", "memory ")
}

// A server's counts are above its port's, with rates since the previous update.
func TestTopServer(t *testing.T) {
	s := &server.Server[tally]{Handler: &echo{new(totals)}, TimeCalls: true, Shards: 1} // top shows one port
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	page := debug.New(debug.Server("shop", s))
	defer page.Close()
	web := httptest.NewServer(page)
	defer web.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	say := func() {
		t.Helper()
		peer.Write(make([]byte, 3<<10))
		if _, err := io.ReadFull(peer, make([]byte, 3<<10)); err != nil {
			t.Fatal(err)
		}
	}
	say()
	m := newModel(t, &watched{url: web.URL + "/"}, 160, 40)
	m.want(t, "shop (server.Server), port shop at", "connections 1", "received/s ", "refused 0", "faults 0", peer.LocalAddr().String())
	if text := m.plain(); strings.Index(text, "connections 1") > strings.Index(text, "registrations 2") {
		t.Errorf("the port comes first\n%s", text)
	}
	say()
	// A call is timed before it is counted.
	await.Until(t, "the second call is counted", func() bool { return s.Stats().Calls >= 2 })
	m.settle(t, m.fetch())
	now, before := m.now.server, m.serverBefore
	passed := now.Time.Sub(before.Time).Seconds() // on a busy machine this may be long
	requests := float64(now.Counts.Calls-before.Counts.Calls) / passed
	received := float64(now.Counts.BytesIn-before.Counts.BytesIn) / passed
	if requests <= 0 || received <= 0 {
		t.Errorf("%v requests and %v bytes a second", requests, received)
	}
	m.want(t, "requests/s "+rate(requests)+" ", "received/s "+bytesOf(received)+" ", "handler time ")
	if status, out, errs := sh(t, "top", web.URL, "--json"); status != 0 {
		t.Errorf("status %d: %s", status, errs)
	} else {
		var got topReport
		decode(t, out, &got)
		if got.Server == nil || got.Server.Counts.BytesIn != 6<<10 || got.Port.Registrations.Total != 2 {
			t.Errorf("%s", out)
		}
	}
	s.Close()
	<-served
	s.Shutdown(t.Context())
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
	// The page is there before the listener is registered.
	await.Until(t, "the listener is shown", func() bool {
		status, out, errs := sh(t, "top", url)
		if status != 0 {
			t.Fatalf("status %d: %s\n%s", status, errs, out)
		}
		return strings.Contains(out, "accepting")
	})
	interrupt()
	if status := <-done; status != 0 {
		t.Errorf("serve: status %d", status)
	}
}

// The samples of a restarted server replace the earlier ones. Otherwise only later samples are requested.
func TestTopSamples(t *testing.T) {
	m := newTopModel(t.Context(), nil, time.Second)
	m.resize(80, 24)
	look := func(observed int64, numbers ...uint64) {
		s := update{query: query{port: "p"}}
		s.Status.Observed = time.Unix(observed, 0)
		for _, n := range numbers {
			s.History.Samples = append(s.History.Samples, debugdata.Sample{Number: n})
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
