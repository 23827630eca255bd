package browser

import (
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/test/chromium"
)

const rowCount = "document.querySelectorAll('#rows tr:not(:has(.none))').length"

// number returns an expression for the value of a card, or -1 while there is none.
func number(card string) string {
	return fmt.Sprintf("(parseFloat(document.querySelector('#card-%s').textContent.replaceAll(',', '')) || 0)", card)
}

// column returns an expression for the texts of a column of the registrations.
func column(i int) string {
	return fmt.Sprintf("[...document.querySelectorAll('#rows tr')].map(r => r.children[%d].textContent)", i)
}

func TestPage(t *testing.T) {
	w := newWorld(t, "127.0.0.1:0", debug.Port("parked", parkMany(t)))
	newLoad(t, w, busy, 80*time.Millisecond)
	b := newBrowser(t)
	b.Do(chromedp.Navigate(w.url))

	b.Until("the page is live", "document.querySelector('#health.live')")
	overview(b, w)
	b.click("#tab-port")
	b.Until("the load is seen", number("registrations")+fmt.Sprintf(" === %d && ", busy+1)+number("notifications")+" > 50")
	b.Until("all are in the table", rowCount+fmt.Sprintf(" === %d", busy+1))
	b.Until("the charts have lines", drawn("#charts"))

	views(b, w)
	search(b)
	sorting(b)
	life(b, w)
	tracing(b)
	b.set("#range", "60")
	chromium.Eval[any](b.Tab, "scrollTo(0, 0), null")
	b.Until("rates by registration", column(8)+".slice(1).every(v => v !== '')")
	b.Picture("debug-port")
	zooming(b)
	dark(b)
	paging(b)
	keyboard(b)
	narrow(b)

	b.clean(strings.TrimSuffix(w.url, "/debug/socknotify/"))
	b.once()
}

// A page that serves other machines shows a warning.
func TestPageForOthers(t *testing.T) {
	page := debug.New(debug.Port("parked", parkMany(t)), debug.AllowRemote())
	t.Cleanup(page.Close)
	web := httptest.NewServer(page)
	t.Cleanup(web.Close)
	b := newBrowser(t)
	b.Do(chromedp.Navigate(web.URL + "/"))
	b.Until("a warning is shown", "/^Other machines may look.*password/.test(document.querySelector('#guard').textContent)")
	b.clean(web.URL)
}

// views verifies that the page shows the numbers of the port and links to its JSON.
func views(b *browser, w *world) {
	b.Until("rates and counts", number("saved")+" > 0 && "+number("wakeups")+" >= 0 && "+
		"['queued', 'waiting', 'accepted', 'completed', 'stale', 'wakeups'].every(c => /^[0-9]/.test(document.querySelector('#card-' + c).textContent))")
	b.Until("the waiters", "/asleep/.test(document.querySelector('#waiters').textContent)")
	b.Until("how the work spreads", "(s => s.length > 0 && Math.abs(s.reduce((a, v) => a + v, 0) - 100) < 1)"+
		"([...document.querySelectorAll('#spread li:not([hidden])')].map(li => parseFloat(li.children[2].textContent)))")
	want := []string{"Socket", "Key", "Local", "Remote", "Filter", "Trigger", "State", "Notifications", "Per second", "Last", "Age"}
	if got := chromium.Eval[[]string](b.Tab, "[...document.querySelectorAll('#columns th')].map(h => h.textContent)"); !slices.Equal(got, want) {
		b.Errorf("columns %q; want %q", got, want)
	}
	row := fmt.Sprintf("(c => /^[0-9]+$/.test(c[0]) && c[1] === c[3] && c[2] === %q && c[3].startsWith('127.0.0.1:') && "+
		"c[4] === 'IN' && c[5] === 'level, one-shot' && /^(enabled|fired|suppressed)/.test(c[6]) && Number(c[7].replaceAll(',', '')) > 0 && "+
		"/^IN .* ago$/.test(c[9]) && (c[10] === '' || /^[0-9.]+ (s|min)$/.test(c[10])))", w.echo)
	b.Until("each connection's row", "[...document.querySelectorAll('#rows tr')].filter(r => r.children[6].textContent !== 'accepting')"+
		".every(r => "+row+"([...r.children].map(c => c.textContent)))")
	b.Until("the access rule is shown", "/Only this machine may look.*AllowRemote.*password/.test(document.querySelector('#guard').textContent)")
	for _, view := range []string{"view", "status", "registrations", "history"} {
		if !chromium.Eval[bool](b.Tab, fmt.Sprintf("fetch(document.querySelector('#json-%s').href).then(r => r.ok ? r.json() : {}).then(v => (v.port || v.status.port) === 'echo')", view)) {
			b.Errorf("no JSON behind %s", view)
		}
	}
	if !chromium.Eval[bool](b.Tab, "fetch('ports').then(r => r.json()).then(v => v.ports.length === 2)") {
		b.Error("no JSON behind ports")
	}
}

// search filters by words and by state.
func search(b *browser) {
	b.Do(chromedp.SendKeys(chromedp.CSS("#search"), "accepting"))
	b.Until("the listener alone is found", rowCount+" === 1 && "+column(6)+"[0] === 'accepting'")
	b.Until("it is said how many", "document.querySelector('#matched').textContent.startsWith('1 of ')")
	b.press(kb.Escape)
	b.Until("all are back", rowCount+fmt.Sprintf(" === %d", busy+1))
	b.Do(chromedp.SendKeys(chromedp.CSS("#search"), "no such thing"))
	b.Until("nothing is found", "document.querySelector('#rows').textContent === 'Nothing is found.'")
	b.press(kb.Escape)
	b.set("#state", "accepting")
	b.Until("by state", rowCount+" === 1")
	b.set("#state", "")
	b.Until("any state", rowCount+fmt.Sprintf(" === %d", busy+1))
}

// sorting clicks a heading: first it sorts by descending, then by ascending notifications.
func sorting(b *browser) {
	counts := "[...document.querySelectorAll('#rows tr')].map(r => Number(r.children[7].textContent.replaceAll(',', '')))"
	b.click("#sort-notifications")
	b.Until("descending", "document.querySelector('th[aria-sort=descending] #sort-notifications')")
	b.Until("the most notified first", fmt.Sprintf("(c => c.length > 1 && c.every((n, i) => !i || c[i-1] >= n))(%s)", counts))
	b.click("#sort-notifications")
	b.Until("the least notified first", fmt.Sprintf("document.querySelector('th[aria-sort=ascending] #sort-notifications') && (c => c.every((n, i) => !i || c[i-1] <= n))(%s)", counts))
	b.click("#sort-socket")
	sockets := chromium.Eval[[]string](b.Tab, column(0))
	if len(sockets) != busy+1 {
		b.Fatalf("%d rows", len(sockets))
	}
}

// life observes a connection that appears, becomes idle and ends.
func life(b *browser, w *world) {
	conn, err := net.Dial("tcp", w.echo.String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	b.Do(chromedp.SendKeys(chromedp.CSS("#search"), conn.LocalAddr().String()))
	b.Until("the connection appears", rowCount+" === 1 && "+column(3)+fmt.Sprintf("[0] === %q", conn.LocalAddr()))
	b.Until("it has heard nothing", column(7)+"[0] === '0' && "+column(9)+"[0] === 'never'")
	for range 3 {
		if _, err := conn.Write([]byte("hello")); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 16)); err != nil {
			b.Fatal(err)
		}
	}
	b.Until("its notifications are counted", column(7)+"[0] === '3' && "+column(9)+"[0].startsWith('IN ')")
	b.Until("it goes idle", column(8)+"[0] === '0' && parseFloat("+column(9)+"[0].slice(3)) > 2")
	conn.Close()
	b.Until("it is gone", "document.querySelector('#rows').textContent === 'Nothing is found.'")
	b.Do(chromedp.Focus(chromedp.CSS("#search")))
	b.press(kb.Escape)
	b.Until("the others are there", rowCount+fmt.Sprintf(" === %d", busy+1))
}

// tracing traces the notifications of one socket.
func tracing(b *browser) {
	socket := chromium.Eval[string](b.Tab, column(0)+"[5]")
	b.click("#rows tr:nth-child(6) button")
	b.Until("the trace runs", "document.querySelector('#trace-toggle').getAttribute('aria-pressed') === 'true'")
	b.Until("entries come", "document.querySelectorAll('#events tr').length > 2")
	of := chromium.Eval[[]string](b.Tab, "[...document.querySelectorAll('#events tr')].map(r => r.children[2].textContent)")
	if slices.ContainsFunc(of, func(s string) bool { return s != socket }) {
		b.Errorf("traced %v; want only %s", of, socket)
	}
	b.set("#trace-socket", "")
	b.set("#trace-kind", "notified")
	b.Until("entries of others come", "new Set([...document.querySelectorAll('#events tr')].map(r => r.children[2].textContent)).size > 3")
	b.Picture("debug-trace")
	b.click("#trace-toggle")
	b.Until("the trace ends", "document.querySelector('#trace-toggle').getAttribute('aria-pressed') === 'false'")
	b.click("#trace-clear")
	b.Until("it is cleared", "document.querySelectorAll('#events tr').length === 0")
}

// paging pages through the 5,000 registrations of the other port.
func paging(b *browser) {
	b.set("#port", "parked")
	b.Until("the other port's registrations", number("registrations")+fmt.Sprintf(" === %d && ", parked)+rowCount+" === 50")
	b.Until("the first page", "document.querySelector('#page').textContent === '1–50 of 5,000' && document.querySelector('#previous').disabled")
	b.click("#next")
	b.Until("the second page", "document.querySelector('#page').textContent === '51–100 of 5,000'")
	b.click("#last")
	b.Until("the last page", "document.querySelector('#page').textContent === '4,951–5,000 of 5,000' && document.querySelector('#next').disabled")
	b.click("#sort-key")
	b.Until("sorted by key, from the first", column(1)+"[0] === '100000'")
	b.click("#sort-key")
	b.Until("the other way round", column(1)+fmt.Sprintf("[0] === '%d'", 100000+parked-1))
	b.Do(chromedp.SendKeys(chromedp.CSS("#search"), "104321"))
	b.Until("one in five thousand", rowCount+" === 1 && "+column(1)+"[0] === '104321'")
	b.press(kb.Escape)
	b.Until("all again", rowCount+" === 50")
	b.press(kb.Escape)
	// The duration is logged for information only.
	for _, query := range []string{"", "q=1043", "sort=key&order=desc", "sort=local&q=127.0.0.1"} {
		b.Logf("%d registrations, %q: %.0f ms", parked, query, chromium.Eval[float64](b.Tab, fmt.Sprintf(
			"(async t => { await (await fetch('view?port=parked&after=0&' + %q)).json(); return performance.now() - t })(performance.now())", query)))
	}
}

// keyboard uses the page without a mouse.
func keyboard(b *browser) {
	chromium.Eval[any](b.Tab, "document.activeElement.blur(), null")
	b.press("n")
	b.Until("n shows the next page", "document.querySelector('#page').textContent.startsWith('51–')")
	b.press("p")
	b.Until("p shows the previous page", "document.querySelector('#page').textContent.startsWith('1–')")
	b.press("/")
	b.Until("/ goes to the search", "document.activeElement.id === 'search'")
	b.press("n", "o", "p", "e")
	b.Until("what is typed there is text", "document.querySelector('#search').value === 'nope' && document.querySelector('#rows .none')")
	b.press(kb.Escape)
	b.Until("Escape clears it", "document.querySelector('#search').value === '' && "+rowCount+" === 50")
	b.press(kb.Escape)
	b.Until("and leaves it", "document.activeElement === document.body")
	b.press(".")
	b.Until(". pauses", "document.querySelector('#health-text').textContent === 'paused'")
	b.press(".")
	b.Until("and goes on", "document.querySelector('#health.live')")
	b.press("?")
	b.Until("? shows the keys", "document.querySelector('#help').open")
	b.press(kb.Escape)
	b.Until("Escape closes them", "!document.querySelector('#help').open")

	// Tab moves from the last field of the toolbar to the table headings, and Enter sorts.
	b.Do(chromedp.Focus(chromedp.CSS("#limit")))
	b.press(kb.Tab, kb.Tab)
	b.Until("Tab comes to the headings", "document.activeElement.id === 'sort-socket'")
	b.press(kb.Enter)
	b.Until("Enter sorts", "document.querySelector('th[aria-sort=ascending] #sort-socket')")
	focus := chromium.Eval[string](b.Tab, "getComputedStyle(document.activeElement).outlineStyle")
	if focus == "none" {
		b.Error("what has the focus is not to be seen")
	}
	b.Do(chromedp.Focus(chromedp.CSS("#charts .plot")))
	b.press(kb.ArrowLeft, kb.ArrowLeft)
	b.Until("a chart describes one second", "/ [1-3] seconds ago/.test(document.querySelector('#charts .plot').getAttribute('aria-label'))")
	b.Until("so do the others", "[...document.querySelectorAll('#charts .plot')].every(p => / [1-3] seconds ago/.test(p.getAttribute('aria-label')))")
	chromium.Eval[any](b.Tab, "document.activeElement.blur(), null")
	b.press("s")
	b.Until("s shows the server", "!document.querySelector('#panel-server').hidden && document.querySelector('#panel-port').hidden")
	b.press("s")
	b.Until("and the port", "document.querySelector('#panel-server').hidden && !document.querySelector('#panel-port').hidden")

	b.unnamed()
}

// unnamed verifies that every control has a name for assistive technology.
func (b *browser) unnamed() {
	b.Helper()
	for _, what := range chromium.Eval[[]string](b.Tab, `[...document.querySelectorAll("button, input, select, a, [role=img]")]
		.filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.[0]?.textContent.trim()))
		.map(e => e.outerHTML.slice(0, 120))`) {
		b.Errorf("no accessible name: %s", what)
	}
}

// dark verifies that the page follows the system's color scheme and is readable.
func dark(b *browser) {
	for _, scheme := range []string{"dark", "light"} {
		b.ColorScheme(scheme)
		b.Readable("body", "#cards dt", "#cards .explain", "#matched", ".chip", "th button", "#rows td", "#health-text", "button")
		light := chromium.Eval[float64](b.Tab, "(m => Number(m[0]) + Number(m[1]) + Number(m[2]))(getComputedStyle(document.body).backgroundColor.match(/\\d+/g))")
		if (scheme == "dark") != (light < 3*128) {
			b.Errorf("%s: the brightness of the background is %v of 765", scheme, light)
		}
	}
}

// drawn returns an expression that is true when each chart of a section has drawn a line, in a colour of its legend: one
// line may cover another.
func drawn(section string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].length > 0 && [...document.querySelectorAll(%q)].every(f => {
		const c = f.querySelector("canvas"), copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
		copy.drawImage(c, 0, 0);
		const d = copy.getImageData(0, 0, c.width, c.height).data;
		return [...f.querySelectorAll(".legend i")].some(e => {
			const want = getComputedStyle(e).backgroundColor.match(/\d+/g).map(Number);
			let n = 0;
			for (let i = 0; i < d.length; i += 4) if (d[i+3] > 200 && want.every((v, j) => Math.abs(d[i+j] - v) < 12)) n++;
			return n > 30;
		});
	})`, section+" figure", section+" figure")
}

// overview verifies that the page shows the server first, and the server's own numbers.
func overview(b *browser, w *world) {
	card := func(name string) string {
		return chromium.Eval[string](b.Tab, fmt.Sprintf("document.querySelector('#card-server-%s').textContent", name))
	}
	note := func(name string) string {
		return chromium.Eval[string](b.Tab, fmt.Sprintf("document.querySelector('#card-server-%s').nextElementSibling.textContent", name))
	}
	b.Until("the connections", fmt.Sprintf("document.querySelector('#card-server-conns')?.textContent === '%d'", busy))
	b.Until("the kind", "document.querySelector('#server-kind').textContent === 'server.Server' && document.querySelector('#panel-port').hidden")
	b.Until("requests", "parseFloat(document.querySelector('#card-server-calls').textContent.replaceAll(',', '')) > 20")
	b.Until("how long calls take", "/^[0-9.]+ (µs|ms|s)$/.test(document.querySelector('#card-server-time').textContent)")
	b.Until("every chart has a line", drawn("#server-charts"))
	// The page's figures are the server's own: it asks between two readings of them.
	for range 5 {
		before := w.server.Stats()
		got := chromium.Eval[map[string]float64](b.Tab, "fetch('server').then(r => r.json()).then(v => ({in: v.counts.bytes_in, out: v.counts.bytes_out, calls: v.counts.calls, conns: v.counts.conns}))")
		after := w.server.Stats()
		within := func(name string, lowest, highest uint64) {
			if v := uint64(got[name]); v < lowest || v > highest {
				b.Errorf("%s is %d; want from %d to %d", name, v, lowest, highest)
			}
		}
		within("in", before.BytesIn, after.BytesIn)
		within("out", before.BytesOut, after.BytesOut)
		within("calls", before.Calls, after.Calls)
		within("conns", busy, busy)
	}
	b.Until("the page shows what it was told", fmt.Sprintf("(n => n >= %d)(Number(document.querySelector('#card-server-calls').nextElementSibling.textContent.match(/[0-9,]+/)[0].replaceAll(',', '')))", min(w.server.Stats().Calls, 9_999_999)))
	if w.server.Stats().Accepted != busy || note("conns") != fmt.Sprintf("%d accepted", busy) || card("faults") != "0" || card("refused") != "0" {
		b.Errorf("conns %q, faults %q, refused %q", note("conns"), card("faults"), card("refused"))
	}
	for _, text := range chromium.Eval[[]string](b.Tab, "[...document.querySelectorAll('.cards > div, figure')].map(e => (e.querySelector('.explain')?.textContent || '') + '|' + e.textContent)") {
		if explain, _, _ := strings.Cut(text, "|"); len(explain) < 20 || !strings.HasSuffix(explain, ".") {
			b.Errorf("not explained: %q", text)
		}
	}
	// The window fits what was observed: the first tick is not minutes before the start.
	if fits := chromium.Eval[bool](b.Tab, "Chart.all.filter(c => c.data[0].length).every(c => c.u.scales.x.min >= c.data[0][0] - 1)"); !fits {
		b.Error("a chart begins before the first sample")
	}
	b.Until("some seconds of it", "serverCharts[0].data[0].length > 8")
	b.Picture("debug-page")
	b.ColorScheme("dark")
	b.Until("dark", "matchMedia('(prefers-color-scheme: dark)').matches")
	b.Until("the lines have changed their colour", drawn("#server-charts"))
	b.Picture("debug-page-dark")
	b.ColorScheme("light")
}

// zooming drags in one chart, which zooms all of them, and goes back.
func zooming(b *browser) {
	b.Do(chromedp.ScrollIntoView(chromedp.CSS("#charts .u-over")))
	box := chromium.Eval[[]float64](b.Tab, "(r => [r.left, r.top, r.width, r.height])(document.querySelector('#charts .u-over').getBoundingClientRect())")
	y := box[1] + box[3]/2
	b.drag(box[0]+box[2]*0.3, y, box[0]+box[2]*0.7, y)
	b.Until("all are zoomed", "Chart.zoom && Chart.all.filter(c => charts.includes(c)).every(c => Math.abs(c.u.scales.x.min - Chart.zoom[0]) < 0.01 && Math.abs(c.u.scales.x.max - Chart.zoom[1]) < 0.01)")
	b.Until("it is offered to go back", "!document.querySelector('.unzoom').hidden")
	b.click(".unzoom")
	b.Until("the latest is shown", "!Chart.zoom && document.querySelector('.unzoom').hidden && charts.every(c => c.u.scales.x.max >= c.data[0].at(-1))")
}

// narrow verifies that only the tables scroll horizontally in a window as narrow as a phone.
func narrow(b *browser) {
	b.Do(chromedp.EmulateViewport(400, 800))
	b.Until("nothing sticks out", "document.documentElement.scrollWidth <= 400")
	b.press("s")
	b.Until("nor beside the server", "!document.querySelector('#panel-server').hidden && document.documentElement.scrollWidth <= 400 && "+drawn("#server-charts"))
	b.Picture("debug-phone")
}
