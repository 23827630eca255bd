package chat_test

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/socknotify/socknotify/test/chromium"
)

// A tab is a tab with the exceptions of its page.
type tab struct {
	*chromium.Tab
	wrong chan string // exceptions
}

func newTab(t *testing.T) *tab {
	t.Helper()
	b := &tab{wrong: make(chan string, 100)}
	b.Tab = chromium.Open(t, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			b.wrong <- e.ExceptionDetails.Text
		}
	}, 800, 800)
	chromium.Call(b.Tab, runtime.Enable, cdp.Empty{})
	return b
}

const (
	connected    = "document.querySelector('#status[data-state=open]') && document.querySelector('#status-text').textContent === 'Connected'"
	disconnected = "document.querySelector('#status[data-state=lost]')"
	last         = "document.querySelector('#messages li:last-child')?.textContent"
)

func TestBrowser(t *testing.T) {
	b := newTab(t)
	r := start(t, "127.0.0.1:0", 0)

	b.Do(chromedp.Navigate("http://" + r.addr + "/"))
	b.Until("it connects", connected)
	b.Until("it is told its name", "document.querySelector('#you').textContent === 'Guest 1'")

	b.Do(chromedp.SendKeys(chromedp.CSS("#text"), "hello"+kb.Enter))
	b.Until("what it sends comes back", last+" === 'Guest 1hello'")
	b.Until("and the field is empty, with the focus", "document.activeElement.id === 'text' && document.activeElement.value === ''")

	idle(b, r)
	other := visit(t, r.addr)
	b.Until("it is told of another", "document.querySelector('#members').textContent === '2'")
	other.say("a push <b>as text</b>")
	b.Until("the push comes", last+" === 'Guest 2a push <b>as text</b>'")
	b.Until("both are parked, as it shows", "document.querySelector('#parked').textContent === '2'")
	b.Picture("websocket-page")

	b.Do(chromedp.Reload())
	b.Until("it connects after a reload", connected+" && document.querySelector('#you').textContent === 'Guest 3'")
	until(t, "the connection from before the reload is gone", func() bool { return r.Hub.Stats().Conns == 2 })
	other.say("again")
	b.Until("pushes come after the reload", last+" === 'Guest 2again'")

	accessible(b)

	// The page notices that the server is gone, and reconnects when it is back.
	r.stop(t)
	b.Until("it notices", disconnected+" && document.querySelector('#send').disabled")
	b.Until("it says so", last+" === 'The connection was lost.'")
	r = start(t, r.addr, 0)
	b.Until("it connects again", connected+" && document.querySelector('#you').textContent === 'Guest 1'")
	other = visit(t, r.addr)
	other.say("welcome back")
	b.Until("pushes come from the new server", last+" === 'Guest 2welcome back'")
	idle(b, r)

	// The same with the button. The page may reconnect first.
	r.stop(t)
	b.Until("it notices again", disconnected)
	b.Until("there is a button", "!document.querySelector('#retry').hidden || document.querySelector('#status[data-state=connecting]')")
	r = start(t, r.addr, 0)
	chromium.Eval[any](b.Tab, "document.querySelector('#retry').click(), null")
	b.Until("it connects once more", connected)
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
	b.Until("the page stays connected", connected)
	if s := r.Hub.Stats(); s.Parked != n || r.Hub.Lots()[0].Stats().Parks != before {
		b.Fatalf("not idle: %+v", s)
	}
}

// accessible checks names, contrasts in both color schemes, and a narrow window.
func accessible(b *tab) {
	b.Helper()
	for _, what := range chromium.Eval[[]string](b.Tab, `[...document.querySelectorAll("button, input, a, [tabindex], [role]")]
		.filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.[0]?.textContent.trim()))
		.map(e => e.outerHTML.slice(0, 120))`) {
		b.Errorf("no accessible name: %s", what)
	}
	for _, scheme := range []string{"dark", "light"} {
		b.ColorScheme(scheme)
		b.Readable("h1", "#status-text", "#messages li b", "#messages li", "label", "#send", "dt", "dd", "footer p")
		b.Picture("websocket-page-" + scheme)
	}
	b.Do(chromedp.Focus(chromedp.CSS("#messages")))
	b.Do(chromedp.KeyEvent(kb.Tab))
	b.Until("what has the focus by Tab is to be seen", "document.activeElement.id === 'text' && getComputedStyle(document.activeElement).outlineStyle === 'solid'")
	b.Do(chromedp.EmulateViewport(320, 640))
	b.Until("nothing sticks out of a narrow window", "document.documentElement.scrollWidth <= 320")
}
