package chat_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/test/chromium"
)

// screenshotsEnv names a directory for screenshots of the page.
const screenshotsEnv = "SCREENSHOTS"

// A tab is a tab of Chromium, which must be on PATH.
type tab struct {
	*testing.T
	ctx   context.Context
	wrong chan string // exceptions
}

func newTab(t *testing.T) *tab {
	t.Helper()
	b := &tab{T: t, wrong: make(chan string, 100)}
	b.ctx = chromium.Open(t, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			b.wrong <- e.ExceptionDetails.Text
		}
	}, 800, 800)
	call(b, runtime.Enable, cdp.Empty{})
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	must(b, chromedp.Do(b.ctx, actions...))
}

// call runs a command of the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], parameters P) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, command, parameters)
	must(b, err)
}

// eval returns the value of an expression in the page.
func eval[V any](b *tab, expression string) V {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[V](expression))
	if err != nil {
		b.Fatalf("%v in %s", err, expression)
	}
	return v
}

// until waits until an expression is true.
func (b *tab) until(what, expression string) {
	b.Helper()
	holds := false
	defer func() {
		if !holds {
			b.Logf("%s\n%s", expression, eval[string](b, "document.body.innerText"))
		}
	}()
	await.Until(b, what, func() bool {
		holds = eval[bool](b, "!!("+expression+")")
		return holds
	})
}

func (b *tab) picture(name string) {
	b.Helper()
	dir := os.Getenv(screenshotsEnv)
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	must(b, err)
	must(b, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

const (
	connected    = "document.querySelector('#status[data-state=open]') && document.querySelector('#status-text').textContent === 'Connected'"
	disconnected = "document.querySelector('#status[data-state=lost]')"
	last         = "document.querySelector('#messages li:last-child')?.textContent"
)

func TestBrowser(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	b := newTab(t)

	b.do(chromedp.Navigate("http://" + r.addr + "/"))
	b.until("it connects", connected)
	b.until("it is told its name", "document.querySelector('#you').textContent === 'Guest 1'")

	b.do(chromedp.SendKeys(chromedp.CSS("#text"), "hello"+kb.Enter))
	b.until("what it sends comes back", last+" === 'Guest 1hello'")
	b.until("and the field is empty, with the focus", "document.activeElement.id === 'text' && document.activeElement.value === ''")

	idle(b, r)
	other := visit(t, r.addr)
	b.until("it is told of another", "document.querySelector('#members').textContent === '2'")
	other.say("a push <b>as text</b>")
	b.until("the push comes", last+" === 'Guest 2a push <b>as text</b>'")
	b.until("both are parked, as it shows", "document.querySelector('#parked').textContent === '2'")
	b.picture("websocket-page")

	b.do(chromedp.Reload())
	b.until("it connects after a reload", connected+" && document.querySelector('#you').textContent === 'Guest 3'")
	until(t, "the connection from before the reload is gone", func() bool { return r.Hub.Stats().Conns == 2 })
	other.say("again")
	b.until("pushes come after the reload", last+" === 'Guest 2again'")

	accessible(b)

	// The page notices that the server is gone, and reconnects when it is back.
	r.stop(t)
	b.until("it notices", disconnected+" && document.querySelector('#send').disabled")
	b.until("it says so", last+" === 'The connection was lost.'")
	r = start(t, r.addr, 0)
	b.until("it connects again", connected+" && document.querySelector('#you').textContent === 'Guest 1'")
	other = visit(t, r.addr)
	other.say("welcome back")
	b.until("pushes come from the new server", last+" === 'Guest 2welcome back'")
	idle(b, r)

	// The same with the button. The page may reconnect first.
	r.stop(t)
	b.until("it notices again", disconnected)
	b.until("there is a button", "!document.querySelector('#retry').hidden || document.querySelector('#status[data-state=connecting]')")
	r = start(t, r.addr, 0)
	eval[any](b, "document.querySelector('#retry').click(), null")
	b.until("it connects once more", connected)
	until(t, "once", func() bool { return r.Hub.Stats().Conns == 1 })
	r.stop(t)

	close(b.wrong)
	for text := range b.wrong {
		t.Errorf("the page: %s", text)
	}
}

// idle watches all connections while no message is sent: they stay parked, and are not parked again.
func idle(b *tab, r *running) {
	b.Helper()
	n := r.Hub.Stats().Conns
	until(b, "all are parked", func() bool { s := r.Hub.Stats(); return s.Parked == n && s.Running == 0 })
	before := r.Hub.Lots()[0].Stats().Parks
	// They must stay as they are while the browser's time passes.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s := r.Hub.Stats(); s.Parked != n || s.Running != 0 || r.Hub.Lots()[0].Stats().Parks != before {
			b.Fatalf("not idle: %+v, parked %d times before", s, before)
		}
	}
	b.until("the page stays connected", connected)
	if s := r.Hub.Stats(); s.Parked != n || r.Hub.Lots()[0].Stats().Parks != before {
		b.Fatalf("not idle: %+v", s)
	}
}

// accessible checks names, contrasts in both color schemes, and a narrow window.
func accessible(b *tab) {
	b.Helper()
	for _, what := range eval[[]string](b, `[...document.querySelectorAll("button, input, a, [tabindex], [role]")]
		.filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.[0]?.textContent.trim()))
		.map(e => e.outerHTML.slice(0, 120))`) {
		b.Errorf("no accessible name: %s", what)
	}
	for _, scheme := range []string{"dark", "light"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		b.until("the colours follow", fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", scheme))
		for _, part := range []string{"h1", "#status-text", "#messages li b", "#messages li", "label", "#send", "dt", "dd", "footer p"} {
			if ratio := eval[float64](b, fmt.Sprintf(contrast, part)); ratio < 4.5 {
				b.Errorf("%s: %s has a contrast of %.2f", scheme, part, ratio)
			}
		}
		b.picture("websocket-page-" + scheme)
	}
	b.do(chromedp.Focus(chromedp.CSS("#messages")))
	b.do(chromedp.KeyEvent(kb.Tab))
	b.until("what has the focus by Tab is to be seen", "document.activeElement.id === 'text' && getComputedStyle(document.activeElement).outlineStyle === 'solid'")
	b.do(chromedp.EmulateViewport(320, 640))
	b.until("nothing sticks out of a narrow window", "document.documentElement.scrollWidth <= 320")
}

// contrast returns the contrast ratio of a text and its background, as WCAG defines it.
const contrast = `(() => {
	const e = document.querySelector(%q);
	const rgb = (s) => s.match(/[\d.]+/g).map(Number);
	let behind = e;
	while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
	const luminance = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const back = behind ?? document.documentElement;
	const [a, b] = [rgb(getComputedStyle(e).color), rgb(getComputedStyle(back).backgroundColor)].map(luminance).sort((x, y) => y - x);
	return (a + 0.05) / (b + 0.05);
})()`
