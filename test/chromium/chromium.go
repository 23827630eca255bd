// Package chromium opens tabs of Chromium for tests.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/internal/test/await"
)

// startLimit is the time that a browser has to start, on a busy machine.
const startLimit = time.Minute

// Open starts a browser with one tab, which listen receives the events of. The browser ends with
// the test. Without one on PATH the test is skipped.
func Open(t *testing.T, listen func(event any), width, height int, more ...chromedp.ExecAllocatorOption) context.Context {
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
	// The test's context cannot be used: it ends before the cleanup functions, which wait for the browser to exit.
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
	return ctx
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// profile returns a directory for a browser. Some of the browser's processes may exit after the first.
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
