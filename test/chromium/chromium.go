// Package chromium drives a tab of Chromium in tests. With SCREENSHOTS=dir pictures of it are
// written to a folder.
package chromium

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/internal/test/await"
)

// startLimit is the time that a browser has to start, on a busy machine.
const startLimit = time.Minute

// A Tab is the tab of a browser that belongs to a test. A call that fails ends the test.
type Tab struct {
	*testing.T
	Ctx context.Context // of package chromedp
}

// Open starts a browser with one tab, whose events listen receives. The browser ends with the test.
// Without one on PATH the test is skipped.
func Open(
	t *testing.T, listen func(event any), width, height int, more ...chromedp.ExecAllocatorOption,
) *Tab {
	t.Helper()
	if !slices.ContainsFunc([]string{"chromium", "chromium-browser", "google-chrome"}, installed) {
		t.Skip("Chromium is not on PATH")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.UserDataDir(profile(t)),
		chromedp.WindowSize(width, height), chromedp.WSURLReadTimeout(startLimit),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
	)
	// The test's context cannot be used: it ends before the cleanup functions, which wait for the
	// browser to exit.
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(options, more...)...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	if err := chromedp.Listen(ctx, listen); err != nil {
		cancel() // chromedp.Cancel would wait for a browser that has not started
		t.Fatal(err)
	}
	t.Cleanup(func() {
		chromedp.Cancel(ctx)
		cancel()
	})
	return &Tab{t, ctx}
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// profile returns a directory for a browser. Some of its processes may exit after the first.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		await.Until(t, "the profile is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}

// Do performs actions.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.Ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// Call sends a command of the DevTools protocol.
func Call[P, R any](b *Tab, command cdp.Command[P, R], parameters P) {
	b.Helper()
	if _, err := chromedp.Call(b.Ctx, command, parameters); err != nil {
		b.Fatal(err)
	}
}

// Eval returns the value of a JavaScript expression, or of the promise that it returns.
func Eval[V any](b *Tab, expression string) V {
	b.Helper()
	v, err := chromedp.Run(b.Ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%v in %s", err, expression)
	}
	return v
}

// Until waits until a JavaScript expression is true. If it fails, there is a picture.
func (b *Tab) Until(what, expression string) {
	b.Helper()
	holds := false
	defer func() {
		if !holds {
			b.Picture("failed")
			b.Logf("%s\n%.2000s", expression, Eval[string](b, "document.body.innerText"))
		}
	}()
	await.Until(b, what, func() bool {
		holds = Eval[bool](b, "!!("+expression+")")
		return holds
	})
}

// Picture saves a screenshot of the window if SCREENSHOTS is set.
func (b *Tab) Picture(name string) {
	b.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.Ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// ColorScheme makes the page see that its user prefers "dark" or "light", and waits until it does.
func (b *Tab) ColorScheme(scheme string) {
	b.Helper()
	Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	b.Until("the colours follow",
		fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", scheme))
}

// Readable verifies that texts have a contrast of 4.5 at least, which WCAG wants.
func (b *Tab) Readable(selectors ...string) {
	b.Helper()
	for _, s := range selectors {
		if ratio := Eval[float64](b, fmt.Sprintf(contrast, s)); ratio < 4.5 {
			b.Errorf("%s has a contrast of %.2f", s, ratio)
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
	const back = behind ?? document.documentElement;
	const [a, b] = [rgb(getComputedStyle(e).color), rgb(getComputedStyle(back).backgroundColor)].map(luminance).sort((x, y) => y - x);
	return (a + 0.05) / (b + 0.05);
})()`
