package browser

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/test/chromium"
)

// A hall is a server whose requests for /wait are suspended, with a page that shows it.
type hall struct {
	url, addr string
	server    *park.HTTPServer

	mu      sync.Mutex
	waiting []*park.Suspended
}

func newHall(t *testing.T) *hall {
	t.Helper()
	h := new(hall)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	h.server = &park.HTTPServer{Server: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			return
		}
		park.Suspend(w, r, func(s *park.Suspended) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.waiting = append(h.waiting, s)
		}, func(w http.ResponseWriter, _ *http.Request, _ *park.Suspended) { fmt.Fprint(w, "now") })
	})}, TimeCalls: true}
	page := debug.New(debug.HTTPServer("hall", h.server))
	web := httptest.NewServer(page)
	h.url = web.URL + "/"
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(l) }()
	t.Cleanup(func() {
		page.Close()
		web.Close()
		h.server.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		h.server.Shutdown(context.Background())
	})
	return h
}

// ask sends a request for a path, and reads no answer.
func (h *hall) ask(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, h.addr)
	return c
}

// Each tile has a name that no other tile has a part of, its chart's legend has the same number, an
// axis of things that are counted has whole numbers, and requests that wait have a tile and a chart.
func TestTiles(t *testing.T) {
	h := newHall(t)
	const waiting, resumed, gone = 7, 2, 3
	var clients []net.Conn
	for range waiting + resumed + gone {
		clients = append(clients, h.ask(t, "/wait"))
	}
	b := newBrowser(t)
	b.Do(chromedp.Navigate(h.url))
	suspended := func(n int) string {
		return fmt.Sprintf("document.querySelector('#card-server-suspended')?.textContent === '%d'", n)
	}
	b.Until("they wait", suspended(len(clients)))
	for _, c := range clients[:gone] {
		c.Close()
	}
	b.Until("some have gone", suspended(waiting+resumed))
	h.mu.Lock()
	for left := resumed; left > 0; h.waiting = h.waiting[1:] {
		if h.waiting[0].Resume() {
			left--
		}
	}
	h.mu.Unlock()
	b.Until("some are answered", suspended(waiting))
	b.Until("how they have ended", fmt.Sprintf("/; ended: %d resumed, %d abandoned by the client, the middle one after /.test("+
		"document.querySelector('#card-server-suspended').nextElementSibling.textContent)", resumed, gone))

	titles := chromium.Eval[[]string](b.Tab, "[...document.querySelectorAll('#panel-server dt, #process-cards dt')].map(e => e.textContent)")
	for i, a := range titles {
		for _, other := range append(titles[:i:i], titles[i+1:]...) {
			if strings.HasPrefix(other, a) {
				b.Errorf("the tiles %q and %q have names that are taken for each other", a, other)
			}
		}
	}

	// A legend says what the tile of its name says, while requests come and go. asking is a request
	// at a time, so that the numbers of both change between two answers of the page.
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	c := h.ask(t, "/")
	asking.Go(func() {
		answers := bufio.NewReader(c)
		for ctx.Err() == nil {
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Body.Close()
			await.Pause(5 * time.Millisecond)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", h.addr)
		}
	})
	b.Until("several seconds of it", "serverCharts[0].data[0].length > 8 && parseFloat(document.querySelector('#card-server-calls').textContent) > 0")
	for range 5 {
		chromium.Eval[any](b.Tab, fresh+".then(() => null)")
		for _, wrong := range chromium.Eval[[]string](b.Tab, `(() => {
			const tile = (name) => document.querySelector("#card-" + name).textContent;
			const legends = {};
			for (const f of document.querySelectorAll("#server-charts figure, #process-charts figure")) {
				const title = f.querySelector("b").textContent;
				for (const l of f.querySelectorAll(".legend")) {
					const [, name, value] = l.textContent.match(/^(.*?)\s*(–|[0-9][^ ]*(?: [^ ]+)?)$/);
					legends[title + "/" + name] = value;
				}
			}
			return [
				["Requests per second/", tile("server-calls")], ["Workers/running", tile("server-running")],
				["Connections/parked", tile("server-parked")], ["Connections/waiting for a worker", tile("server-waiting")],
				["Handler time/median", tile("server-time")], ["Suspended requests/suspended", tile("server-suspended")],
				["Goroutines/", tile("goroutines")], ["Memory/all", tile("memory")],
				["Memory/objects", tile("objects")], ["Memory/stacks", tile("stacks")],
			].filter(([name, value]) => legends[name] !== value).map(([name, value]) => name + ": the legend says " + legends[name] + " and the tile " + value);
		})()`) {
			b.Error(wrong)
		}
	}
	stop()
	asking.Wait()

	b.Until("each chart is drawn", drawn("#server-charts")+" && "+drawn("#process-charts"))
	b.Until("goroutines and memory", "parseInt(document.querySelector('#card-goroutines').textContent) > 5 && "+
		"/^[0-9.,]+ (KiB|MiB|GiB)$/.test(document.querySelector('#card-memory').textContent) && "+
		"/ a goroutine$/.test(document.querySelector('#card-stacks').nextElementSibling.textContent)")
	b.Picture("debug-hall")
	for _, top := range []string{"0", "1", "2", "3", "7"} { // whatever the largest number is
		for _, wrong := range chromium.Eval[[]string](b.Tab, fmt.Sprintf(`Chart.all.filter((c) => c.format === count).flatMap((c) => {
			const [samples, range, now, then] = [c.samples, c.range, c.now, c.then];
			const values = c.series.map((s) => s.value);
			c.series.forEach((s) => (s.value = () => %s));
			c.draw(samples, range, now, then);
			c.u.redraw();
			const ticks = c.u.axes[1]._values;
			c.series.forEach((s, i) => (s.value = values[i]));
			c.draw(samples, range, now, then);
			return c.data[0].length && (new Set(ticks).size !== ticks.length || ticks.some((v) => !/^[0-9]+$/.test(v)) || ticks.length < 2) ? [c.title + ": " + ticks.join(", ")] : [];
		})`, top)) {
			b.Errorf("the axis of a chart up to %s: %s", top, wrong)
		}
	}
	b.clean(strings.TrimSuffix(h.url, "/"))
}
