// Package browser tests the page of package debug, and package park/http2, with Chromium, which must
// be on PATH. With SCREENSHOTS=dir the tests write screenshots to a folder.
package browser
