// Package browsertest tries package debug's page in a browser. It is a module of its own for the sake of
// what it takes to drive one: Chromium, which must be on PATH, and chromedp. With SCREENSHOTS=dir the test
// leaves pictures there.
package browsertest
