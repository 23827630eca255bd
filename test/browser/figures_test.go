package browser

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/test/chromium"
)

// fresh is a script that waits until the page shows the answer to a request that begins now. The page's own requests may come
// in between.
const fresh = `(async () => {
	for (let turn; turn !== asking - 1;) {
		turn = asking;
		await look();
	}
})()`

// shown is a script that returns the texts of the cards then.
const shown = fresh + `.then(() => Object.fromEntries([...document.querySelectorAll(".cards dd[id]")]
	.flatMap(e => [[e.id, e.textContent], [e.id + "-note", e.nextElementSibling.textContent]])))`

// The page's figures are the server's own counters: with a thousand connections under load, when the load rests, and when
// another process has taken the place of the first, with counters that begin again.
func TestFigures(t *testing.T) {
	first := newWorld(t, "127.0.0.1:0")
	b := newBrowser(t)
	b.Do(chromedp.Navigate(first.url))
	b.Until("the page is live", "document.querySelector('#health.live')")
	page, err := url.Parse(first.url)
	if err != nil {
		t.Fatal(err)
	}
	figures(b, first)
	old := first.server.Stats()
	first.stop()
	b.Until("the page notices the end", "document.querySelector('#health.failing')")

	began := time.Now()
	second := newWorld(t, page.Host)
	b.Until("the page finds the next", "document.querySelector('#health.live')")
	b.click("#tab-server")
	b.Until("it has new samples", "view.served.length > 1")
	if st := second.server.Stats(); st.Calls >= old.Calls {
		t.Fatalf("%d calls before the load; the first server had %d", st.Calls, old.Calls)
	}
	figures(b, second)
	// Nothing of the first server is left, such as a rate below 0.
	b.click("#tab-server")
	b.Until("the server's charts", "serverCharts.every(c => c.data[0].length > 2) && "+drawn("#server-charts"))
	if from := chromium.Eval[float64](b.Tab, "Math.min(...[...serverCharts, ...charts].map(c => c.data[0][0]))"); from < float64(began.Unix()) {
		t.Errorf("a chart begins at %.0f, and the second server at %d", from, began.Unix())
	}
	for _, wrong := range chromium.Eval[[]string](b.Tab, `[...serverCharts, ...charts].flatMap(c => c.data[0].flatMap((x, i) => [
		...(i && x <= c.data[0][i-1] ? [c.title + ": " + x + " after " + c.data[0][i-1]] : []),
		...c.data.slice(1).filter(s => s[i] !== null && !(s[i] >= 0)).map(s => c.title + ": " + s[i] + " at " + x)]))`) {
		t.Error(wrong)
	}
	b.lost()
	b.clean("http://" + page.Host)
}

// figures puts a thousand connections of load on a server, and compares.
func figures(b *browser, w *world) {
	b.Helper()
	before := w.server.Stats()
	l := newLoad(b.T, w, many, time.Second)
	b.Until("all connections", fmt.Sprintf("document.querySelector('#card-server-conns').textContent === '%s'", grouped(many)))
	for range 5 { // under load each figure is between two readings
		lowest := w.server.Stats()
		got := chromium.Eval[map[string]string](b.Tab, shown)
		highest := w.server.Stats()
		for _, f := range all {
			from, to := span(b, got[f.place])
			low, high := f.value(&lowest), f.value(&highest)
			if to < float64(low) || from > float64(high) {
				b.Errorf("%s is %q under load; want from %d to %d", f.place, got[f.place], low, high)
			}
		}
	}
	b.click("#tab-port")
	b.Until("the load is seen inside the port", number("notifications")+" > 100")
	b.click("#tab-server")

	l.rest()
	sent := 0
	for _, n := range l.requests {
		sent += n
	}
	st := w.server.Stats()
	if st.Calls-before.Calls != uint64(sent) || st.BytesIn-before.BytesIn != uint64(sent*size) || st.BytesOut-before.BytesOut != uint64(sent*size) {
		b.Errorf("%d requests; the server has %+v", sent, st)
	}
	got := chromium.Eval[map[string]string](b.Tab, shown)
	for _, f := range all {
		if from, to := span(b, got[f.place]); from > float64(f.value(&st)) || to < float64(f.value(&st)) {
			b.Errorf("%s is %q; want %d", f.place, got[f.place], f.value(&st))
		}
	}
	if v := chromium.Eval[map[string]uint64](b.Tab, "fetch('server').then(r => r.json()).then(v => ({calls: v.counts.calls, bytes: v.counts.bytes_in}))"); v["calls"] != st.Calls || v["bytes"] != st.BytesIn {
		b.Errorf("the JSON has %v; the server has %+v", v, st)
	}

	// The rows: each connection has had a notification for each request.
	b.click("#tab-port")
	b.set("#limit", "500")
	chromium.Eval[any](b.Tab, "document.querySelector('#first').click(), null")
	want := map[string]int{}
	for i, c := range l.conns {
		want[c.LocalAddr().String()] = l.requests[i]
	}
	for from := 0; from <= many; from += 500 {
		b.Until("a page of rows", fmt.Sprintf("document.querySelector('#page').textContent === '%s–%s of %s'", grouped(from+1), grouped(min(from+500, many+1)), grouped(many+1)))
		chromium.Eval[any](b.Tab, fresh+".then(() => null)")
		for _, row := range chromium.Eval[[][2]string](b.Tab, "[...document.querySelectorAll('#rows tr')].map(r => [r.children[3].textContent, r.children[7].textContent])") {
			if row[0] == "" {
				continue // the listener
			}
			if n, known := want[row[0]]; !known || row[1] != grouped(n) {
				b.Errorf("the row of %s has %s notifications; want %d", row[0], row[1], n)
			}
			delete(want, row[0])
		}
		if from+500 <= many {
			b.click("#next")
		}
	}
	if len(want) > 0 {
		b.Errorf("%d connections have no row", len(want))
	}
	if p := w.server.Ports()[0].Stats(); chromium.Eval[string](b.Tab, "document.querySelector('#card-registrations').textContent") != grouped(int(p.Registrations)) {
		b.Errorf("the page has %s registrations; the port has %d", chromium.Eval[string](b.Tab, "document.querySelector('#card-registrations').textContent"), p.Registrations)
	}
	b.click("#tab-server")
	l.stop()
	b.Until("the connections end", "document.querySelector('#card-server-conns').textContent === '0'")
}

// A figure is a number on the page.
type figure struct {
	place string
	value func(*server.Stats) uint64
}

var all = []figure{
	{"card-server-conns", func(s *server.Stats) uint64 { return uint64(s.Conns) }},
	{"card-server-conns-note", func(s *server.Stats) uint64 { return s.Accepted }},
	{"card-server-calls-note", func(s *server.Stats) uint64 { return s.Calls }},
	{"card-server-in-note", func(s *server.Stats) uint64 { return s.BytesIn }},
	{"card-server-out-note", func(s *server.Stats) uint64 { return s.BytesOut }},
	{"card-server-queued-note", func(s *server.Stats) uint64 { return s.Overloads }},
	{"card-server-refused", func(s *server.Stats) uint64 { return s.Refused + s.RejectedHeaders }},
	{"card-server-timeouts", func(s *server.Stats) uint64 {
		return s.TimedOut.Idle + s.TimedOut.Slow + s.TimedOut.Message + s.TimedOut.Handshake
	}},
	{"card-server-handshakes", func(s *server.Stats) uint64 { return s.Handshakes }},
	{"card-server-handshakes-note", func(s *server.Stats) uint64 {
		return s.Rejected - s.RejectedHeaders + s.TimedOut.Handshake + s.EvictedHandshakes
	}},
	{"card-server-faults", func(s *server.Stats) uint64 { return s.Panics + s.Stuck }},
}

// span returns the numbers that a text such as "12,345 in all" or "1.5 MiB in all" may be rounded from.
func span(b *browser, text string) (from, to float64) {
	b.Helper()
	words := append(strings.Fields(text), "", "")
	n, err := strconv.ParseFloat(strings.ReplaceAll(words[0], ",", ""), 64)
	if err != nil {
		b.Fatalf("%q does not begin with a number", text)
	}
	unit, isUnit := map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "M": 1e6}[words[1]]
	if !isUnit {
		return n, n
	}
	half := 0.5
	if strings.Contains(words[0], ".") {
		half = 0.05
	}
	return (n - half) * unit, (n + half) * unit
}

// grouped returns a number as the page writes it.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
