package browsertest

import (
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/socknotify/socknotify/debug"
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
	w := newWorld(t)
	b := newBrowser(t)
	b.do(chromedp.Navigate(w.url))

	b.until("the page is live", "document.querySelector('#health.live')")
	b.until("the load is seen", number("registrations")+fmt.Sprintf(" === %d && ", busy+1)+number("notifications")+" > 50")
	b.until("all are in the table", rowCount+fmt.Sprintf(" === %d", busy+1))
	b.until("the charts have lines", "[...document.querySelectorAll('#charts .line0')].every(l => l.getAttribute('d').includes('L'))")

	views(b, w)
	search(b)
	sorting(b)
	life(b, w)
	tracing(b)
	b.set("#range", "60")
	eval[any](b, "scrollTo(0, 0), null")
	b.until("rates by registration", column(8)+".slice(1).every(v => v !== '')")
	b.picture("debug-page")
	dark(b)
	paging(b)
	keyboard(b)
	narrow(b)

	b.clean(strings.TrimSuffix(w.url, "/debug/socknotify/"))
	b.once()
}

// A page that serves other machines shows a warning.
func TestPageForOthers(t *testing.T) {
	page := debug.New(debug.Port("parked", park(t)), debug.AllowRemote())
	t.Cleanup(page.Close)
	web := httptest.NewServer(page)
	t.Cleanup(web.Close)
	b := newBrowser(t)
	b.do(chromedp.Navigate(web.URL + "/"))
	b.until("a warning is shown", "/^Other machines may look.*password/.test(document.querySelector('#guard').textContent)")
	b.clean(web.URL)
}

// views verifies that the page shows the numbers of the port and links to its JSON.
func views(b *browser, w *world) {
	b.until("rates and counts", number("saved")+" > 0 && "+number("wakeups")+" >= 0 && "+
		"['queued', 'waiting', 'accepted', 'completed', 'stale', 'wakeups'].every(c => /^[0-9]/.test(document.querySelector('#card-' + c).textContent))")
	b.until("the waiters", "/asleep/.test(document.querySelector('#waiters').textContent)")
	b.until("how the work spreads", "(s => s.length > 0 && Math.abs(s.reduce((a, v) => a + v, 0) - 100) < 1)"+
		"([...document.querySelectorAll('#spread li:not([hidden])')].map(li => parseFloat(li.children[2].textContent)))")
	want := []string{"Socket", "Key", "Local", "Remote", "Filter", "Trigger", "State", "Notifications", "Per second", "Last", "Age"}
	if got := eval[[]string](b, "[...document.querySelectorAll('#columns th')].map(h => h.textContent)"); !slices.Equal(got, want) {
		b.Errorf("columns %q; want %q", got, want)
	}
	row := fmt.Sprintf("(c => /^[0-9]+$/.test(c[0]) && c[1].includes('server.Key') && c[2] === %q && c[3].startsWith('127.0.0.1:') && "+
		"c[4] === 'IN' && c[5] === 'level, one-shot' && /^(enabled|fired|suppressed)/.test(c[6]) && Number(c[7].replaceAll(',', '')) > 0 && "+
		"/^IN .* ago$/.test(c[9]) && /^[0-9.]+ (s|min)$/.test(c[10]))", w.echo)
	b.until("each connection's row", "[...document.querySelectorAll('#rows tr')].filter(r => r.children[6].textContent !== 'accepting')"+
		".every(r => "+row+"([...r.children].map(c => c.textContent)))")
	b.until("the access rule is shown", "/Only this machine may look.*AllowRemote.*password/.test(document.querySelector('#guard').textContent)")
	for _, view := range []string{"view", "status", "registrations", "history"} {
		if !eval[bool](b, fmt.Sprintf("fetch(document.querySelector('#json-%s').href).then(r => r.ok ? r.json() : {}).then(v => (v.port || v.status.port) === 'echo')", view)) {
			b.Errorf("no JSON behind %s", view)
		}
	}
	if !eval[bool](b, "fetch('ports').then(r => r.json()).then(v => v.ports.length === 2)") {
		b.Error("no JSON behind ports")
	}
}

// search filters by words and by state.
func search(b *browser) {
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "accepting"))
	b.until("the listener alone is found", rowCount+" === 1 && "+column(6)+"[0] === 'accepting'")
	b.until("it is said how many", "document.querySelector('#matched').textContent.startsWith('1 of ')")
	b.press(kb.Escape)
	b.until("all are back", rowCount+fmt.Sprintf(" === %d", busy+1))
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "no such thing"))
	b.until("nothing is found", "document.querySelector('#rows').textContent === 'Nothing is found.'")
	b.press(kb.Escape)
	b.set("#state", "accepting")
	b.until("by state", rowCount+" === 1")
	b.set("#state", "")
	b.until("any state", rowCount+fmt.Sprintf(" === %d", busy+1))
}

// sorting clicks a heading: first it sorts by descending, then by ascending notifications.
func sorting(b *browser) {
	counts := "[...document.querySelectorAll('#rows tr')].map(r => Number(r.children[7].textContent.replaceAll(',', '')))"
	b.click("#sort-notifications")
	b.until("descending", "document.querySelector('th[aria-sort=descending] #sort-notifications')")
	b.until("the most notified first", fmt.Sprintf("(c => c.length > 1 && c.every((n, i) => !i || c[i-1] >= n))(%s)", counts))
	b.click("#sort-notifications")
	b.until("the least notified first", fmt.Sprintf("document.querySelector('th[aria-sort=ascending] #sort-notifications') && (c => c.every((n, i) => !i || c[i-1] <= n))(%s)", counts))
	b.click("#sort-socket")
	sockets := eval[[]string](b, column(0))
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
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), conn.LocalAddr().String()))
	b.until("the connection appears", rowCount+" === 1 && "+column(3)+fmt.Sprintf("[0] === %q", conn.LocalAddr()))
	b.until("it has heard nothing", column(7)+"[0] === '0' && "+column(9)+"[0] === 'never'")
	for range 3 {
		if _, err := conn.Write([]byte("hello")); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 16)); err != nil {
			b.Fatal(err)
		}
	}
	b.until("its notifications are counted", column(7)+"[0] === '3' && "+column(9)+"[0].startsWith('IN ')")
	b.until("it goes idle", column(8)+"[0] === '0' && parseFloat("+column(9)+"[0].slice(3)) > 2")
	conn.Close()
	b.until("it is gone", "document.querySelector('#rows').textContent === 'Nothing is found.'")
	b.do(chromedp.Focus(chromedp.CSS("#search")))
	b.press(kb.Escape)
	b.until("the others are there", rowCount+fmt.Sprintf(" === %d", busy+1))
}

// tracing traces the notifications of one socket.
func tracing(b *browser) {
	socket := eval[string](b, column(0)+"[5]")
	b.click("#rows tr:nth-child(6) button")
	b.until("the trace runs", "document.querySelector('#trace-toggle').getAttribute('aria-pressed') === 'true'")
	b.until("entries come", "document.querySelectorAll('#events tr').length > 2")
	of := eval[[]string](b, "[...document.querySelectorAll('#events tr')].map(r => r.children[2].textContent)")
	if slices.ContainsFunc(of, func(s string) bool { return s != socket }) {
		b.Errorf("traced %v; want only %s", of, socket)
	}
	b.set("#trace-socket", "")
	b.set("#trace-kind", "notified")
	b.until("entries of others come", "new Set([...document.querySelectorAll('#events tr')].map(r => r.children[2].textContent)).size > 3")
	b.picture("debug-trace")
	b.click("#trace-toggle")
	b.until("the trace ends", "document.querySelector('#trace-toggle').getAttribute('aria-pressed') === 'false'")
	b.click("#trace-clear")
	b.until("it is cleared", "document.querySelectorAll('#events tr').length === 0")
}

// paging pages through the 5,000 registrations of the other port.
func paging(b *browser) {
	b.set("#port", "parked")
	b.until("the other port's registrations", number("registrations")+fmt.Sprintf(" === %d && ", parked)+rowCount+" === 50")
	b.until("the first page", "document.querySelector('#page').textContent === '1–50 of 5,000' && document.querySelector('#previous').disabled")
	b.click("#next")
	b.until("the second page", "document.querySelector('#page').textContent === '51–100 of 5,000'")
	b.click("#last")
	b.until("the last page", "document.querySelector('#page').textContent === '4,951–5,000 of 5,000' && document.querySelector('#next').disabled")
	b.click("#sort-key")
	b.until("sorted by key, from the first", column(1)+"[0] === '100000'")
	b.click("#sort-key")
	b.until("the other way round", column(1)+fmt.Sprintf("[0] === '%d'", 100000+parked-1))
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "104321"))
	b.until("one in five thousand", rowCount+" === 1 && "+column(1)+"[0] === '104321'")
	b.press(kb.Escape)
	b.until("all again", rowCount+" === 50")
	b.press(kb.Escape)
	// The duration is logged for information only.
	for _, query := range []string{"", "q=1043", "sort=key&order=desc", "sort=local&q=127.0.0.1"} {
		b.Logf("%d registrations, %q: %.0f ms", parked, query, eval[float64](b, fmt.Sprintf(
			"(async t => { await (await fetch('view?port=parked&after=0&' + %q)).json(); return performance.now() - t })(performance.now())", query)))
	}
}

// keyboard uses the page without a mouse.
func keyboard(b *browser) {
	eval[any](b, "document.activeElement.blur(), null")
	b.press("n")
	b.until("n shows the next page", "document.querySelector('#page').textContent.startsWith('51–')")
	b.press("p")
	b.until("p shows the previous page", "document.querySelector('#page').textContent.startsWith('1–')")
	b.press("/")
	b.until("/ goes to the search", "document.activeElement.id === 'search'")
	b.press("n", "o", "p", "e")
	b.until("what is typed there is text", "document.querySelector('#search').value === 'nope' && document.querySelector('#rows .none')")
	b.press(kb.Escape)
	b.until("Escape clears it", "document.querySelector('#search').value === '' && "+rowCount+" === 50")
	b.press(kb.Escape)
	b.until("and leaves it", "document.activeElement === document.body")
	b.press(".")
	b.until(". pauses", "document.querySelector('#health-text').textContent === 'paused'")
	b.press(".")
	b.until("and goes on", "document.querySelector('#health.live')")
	b.press("?")
	b.until("? shows the keys", "document.querySelector('#help').open")
	b.press(kb.Escape)
	b.until("Escape closes them", "!document.querySelector('#help').open")

	// Tab moves from the last field of the toolbar to the table headings, and Enter sorts.
	b.do(chromedp.Focus(chromedp.CSS("#limit")))
	b.press(kb.Tab, kb.Tab)
	b.until("Tab comes to the headings", "document.activeElement.id === 'sort-socket'")
	b.press(kb.Enter)
	b.until("Enter sorts", "document.querySelector('th[aria-sort=ascending] #sort-socket')")
	focus := eval[string](b, "getComputedStyle(document.activeElement).outlineStyle")
	if focus == "none" {
		b.Error("what has the focus is not to be seen")
	}
	b.do(chromedp.Focus(chromedp.CSS("#charts svg")))
	b.press(kb.ArrowLeft, kb.ArrowLeft)
	b.until("a chart describes one second", "document.querySelector('#charts svg').getAttribute('aria-label').includes('2 seconds ago')")

	b.unnamed()
}

// unnamed verifies that every control has a name for assistive technology.
func (b *browser) unnamed() {
	b.Helper()
	for _, what := range eval[[]string](b, `[...document.querySelectorAll("button, input, select, a, svg")]
		.filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.[0]?.textContent.trim()))
		.map(e => e.outerHTML.slice(0, 120))`) {
		b.Errorf("no accessible name: %s", what)
	}
}

// dark verifies that the page follows the system's color scheme and is readable.
func dark(b *browser) {
	for _, on := range []bool{true, false} {
		b.dark(on)
		b.until("the colours follow", fmt.Sprintf("matchMedia('(prefers-color-scheme: dark)').matches === %t", on))
		for _, part := range []string{"body", "#cards dt", "#matched", ".chip", "th button", "#rows td", "#health-text", "button"} {
			if ratio := eval[float64](b, fmt.Sprintf(contrast, part)); ratio < 4.5 {
				b.Errorf("dark %t: %s has a contrast of %.2f", on, part, ratio)
			}
		}
		light := eval[float64](b, "(m => Number(m[0]) + Number(m[1]) + Number(m[2]))(getComputedStyle(document.body).backgroundColor.match(/\\d+/g))")
		if on != (light < 3*128) {
			b.Errorf("dark %t: the brightness of the background is %v of 765", on, light)
		}
		if on {
			b.picture("debug-page-dark")
		}
	}
}

// contrast returns the contrast ratio of a text and its background, as defined by WCAG.
const contrast = `(() => {
	const e = document.querySelector(%q);
	const rgb = (s) => s.match(/[\d.]+/g).map(Number);
	let behind = e;
	while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
	const luminance = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const [a, b] = [rgb(getComputedStyle(e).color), rgb(getComputedStyle(behind).backgroundColor)].map(luminance).sort((x, y) => y - x);
	return (a + 0.05) / (b + 0.05);
})()`

// narrow verifies that only the tables scroll horizontally in a window as narrow as a phone.
func narrow(b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	b.until("nothing sticks out", "document.documentElement.scrollWidth <= 400")
}
