// Package browsertest tests the page of package debug, and package park/http2, with a browser. It is a module of its own
// because it requires chromedp. Chromium must be on PATH. With SCREENSHOTS=dir the test writes screenshots to dir.
package browsertest
