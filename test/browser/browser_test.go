package browser

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/test/chromium"
)

// A browser is one tab, with the problems that it has reported and the requests that it has sent.
type browser struct {
	*chromium.Tab

	mu       sync.Mutex
	problems []string
	urls     []string
}

func newBrowser(t *testing.T, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	b := new(browser)
	b.Tab = chromium.Open(t, b.listen, 1280, 1000, more...)
	chromium.Call(b.Tab, network.Enable, network.EnableParams{})
	chromium.Call(b.Tab, log.Enable, cdp.Empty{})
	chromium.Call(b.Tab, runtime.Enable, cdp.Empty{})
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.urls = append(b.urls, e.Request.URL)
	case *log.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Text+" in "+e.ExceptionDetails.URL)
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("console.%s", e.Type))
	}
}

// clean verifies that the page has reported no problem and has sent no request to other servers.
func (b *browser) clean(origin string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("the page reports: %s", p)
	}
	for _, u := range b.urls {
		if !strings.HasPrefix(u, origin) {
			b.Errorf("the page requests %s", u)
		}
	}
	if len(b.urls) == 0 {
		b.Error("no requests were seen at all")
	}
}

// lost drops the problems of requests that were not answered, and verifies that there were some.
func (b *browser) lost() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.problems)
	b.problems = slices.DeleteFunc(b.problems, func(p string) bool { return strings.Contains(p, "Failed to load resource") })
	if n == len(b.problems) {
		b.Error("every request was answered")
	}
}

// once verifies that the page refreshes itself by one request at a time.
func (b *browser) once() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := map[string]int{}
	for _, u := range b.urls {
		path, _, _ := strings.Cut(u, "?")
		asked[path[strings.LastIndexByte(path, '/')+1:]]++
	}
	// The test itself has requested each of the others once.
	if asked["view"] < 10 || asked["status"] > 1 || asked["registrations"] > 1 || asked["history"] > 1 {
		b.Errorf("the page has requested %v", asked)
	}
}

// press sends keys to the focused element.
func (b *browser) press(keys ...string) {
	b.Helper()
	for _, k := range keys {
		if k < " " || k > "~" {
			b.Do(chromedp.KeyEvent(k))
			continue
		}
		// The text is part of the event, so that a page that handles the key can prevent the input.
		chromium.Call(b.Tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: k, Text: k})
		chromium.Call(b.Tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: k})
	}
}

// click clicks the center of an element with the mouse.
func (b *browser) click(selector string) {
	b.Helper()
	b.Do(chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// set sets the value of a field, like a user.
func (b *browser) set(selector, value string) {
	b.Helper()
	chromium.Eval[bool](b.Tab, fmt.Sprintf("(e => { e.value = %q; return e.dispatchEvent(new Event('change', {bubbles: true})) })(document.querySelector(%q))", value, selector))
}

// drag presses the mouse at one point of the window and releases it at another.
func (b *browser) drag(x, y, toX, toY float64) {
	b.Helper()
	mouse := func(kind input.DispatchMouseEventType, x, y float64) {
		b.Helper()
		chromium.Call(b.Tab, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: 1})
	}
	mouse(input.DispatchMouseEventTypeMouseMoved, x, y)
	mouse(input.DispatchMouseEventTypeMousePressed, x, y)
	for i := range 5 {
		mouse(input.DispatchMouseEventTypeMouseMoved, x+(toX-x)*float64(i+1)/5, y+(toY-y)*float64(i+1)/5)
	}
	mouse(input.DispatchMouseEventTypeMouseReleased, toX, toY)
}
