package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/test/chromium"
)

const (
	// screenshotsEnv names the environment variable with a directory for screenshots.
	screenshotsEnv = "SCREENSHOTS"
)

// A browser is one tab, with the problems that it has reported and the requests that it has sent.
type browser struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
	urls     []string
}

func newBrowser(t *testing.T, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	b := &browser{T: t}
	b.ctx = chromium.Open(t, b.listen, 1280, 1000, more...)
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
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

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], parameters P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, parameters); err != nil {
		b.Fatal(err)
	}
}

// eval returns the value of a JavaScript expression, or of the promise that it returns.
func eval[V any](b *browser, expression string) V {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%v in %s", err, expression)
	}
	return v
}

// until waits until a JavaScript expression is true.
func (b *browser) until(what, expression string) {
	b.Helper()
	holds := false
	defer func() {
		if !holds {
			b.picture("failed")
			b.Logf("%s\nrows: %.500s", expression, eval[string](b, "document.querySelector('#rows').innerText"))
		}
	}()
	await.Until(b, what, func() bool {
		holds = eval[bool](b, "!!("+expression+")")
		return holds
	})
}

// press sends keys to the focused element.
func (b *browser) press(keys ...string) {
	b.Helper()
	for _, k := range keys {
		if k < " " || k > "~" {
			b.do(chromedp.KeyEvent(k))
			continue
		}
		// The text is part of the event, so that a page that handles the key can prevent the input.
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: k, Text: k})
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: k})
	}
}

// click clicks the center of an element with the mouse.
func (b *browser) click(selector string) {
	b.Helper()
	b.do(chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// set sets the value of a field, like a user.
func (b *browser) set(selector, value string) {
	b.Helper()
	eval[bool](b, fmt.Sprintf("(e => { e.value = %q; return e.dispatchEvent(new Event('change', {bubbles: true})) })(document.querySelector(%q))", value, selector))
}

// drag presses the mouse at one point of the window and releases it at another.
func (b *browser) drag(x, y, toX, toY float64) {
	b.Helper()
	mouse := func(kind input.DispatchMouseEventType, x, y float64) {
		b.Helper()
		call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: 1})
	}
	mouse(input.DispatchMouseEventTypeMouseMoved, x, y)
	mouse(input.DispatchMouseEventTypeMousePressed, x, y)
	for i := range 5 {
		mouse(input.DispatchMouseEventTypeMouseMoved, x+(toX-x)*float64(i+1)/5, y+(toY-y)*float64(i+1)/5)
	}
	mouse(input.DispatchMouseEventTypeMouseReleased, toX, toY)
}

func (b *browser) dark(on bool) {
	b.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// picture saves a screenshot of the window if SCREENSHOTS is set.
func (b *browser) picture(name string) {
	b.Helper()
	dir := os.Getenv(screenshotsEnv)
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.Fatal(err)
	}
}
