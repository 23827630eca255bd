package debug_test

import (
	"net/http/httptest"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// A page of fifty out of five thousand registrations: as they come, sorted, and searched for an address.
func BenchmarkRegistrations(b *testing.B) {
	p := newPort[int](b)
	for i := range 5000 {
		enable(b, p, udp(b), i, socknotify.EventIn)
	}
	page := debug.New(debug.Port("p", p))
	defer page.Close()
	for name, query := range map[string]string{
		"plain": "", "by-notifications": "sort=notifications", "by-key": "sort=key", "searched": "q=127.0.0.1:1",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, request("GET", "/registrations?"+query))
				if w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
