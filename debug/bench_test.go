package debug_test

import (
	"fmt"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// BenchmarkRegistrations measures a page of 50 out of 5,000 registrations: unsorted, sorted, and searched for an
// address.
func BenchmarkRegistrations(b *testing.B) {
	p := newPort[int](b)
	for i := range 5000 {
		enable(b, p, newUDP(b), i, socknotify.EventIn)
	}
	page := debug.New(debug.Port("p", p))
	defer page.Close()
	for name, query := range map[string]string{
		"plain": "", "by-notifications": "sort=notifications", "by-key": "sort=key", "searched": "q=127.0.0.1:1",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if w := answer(page, request("GET", "/registrations?"+query)); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// BenchmarkView measures the request that the page sends once a second, with 100 registrations.
func BenchmarkView(b *testing.B) {
	p := newPort[int](b)
	for i := range 100 {
		enable(b, p, newUDP(b), i, socknotify.EventIn)
	}
	page := debug.New(debug.Port("p", p))
	defer page.Close()
	b.ReportAllocs()
	for b.Loop() {
		if w := answer(page, request("GET", "/view?sort=socket&order=asc&offset=0&limit=50")); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

// BenchmarkMounted measures the cost of a notification without a page, with a closed page, and with a mounted page.
// Each call enables ready sockets and dequeues their notifications, one or sixteen.
func BenchmarkMounted(b *testing.B) {
	for _, batch := range []int{1, 16} {
		for _, how := range []string{"never", "closed", "mounted"} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, how), func(b *testing.B) { benchmarkMounted(b, batch, how) })
		}
	}
}

func benchmarkMounted(b *testing.B, batch int, how string) {
	p := newPort[int](b)
	if how != "never" {
		page := debug.New(debug.Port("p", p))
		defer page.Close()
		if how == "closed" {
			page.Close()
		}
	}
	var regs []socknotify.Registration[int]
	for i := range batch {
		regs = append(regs, socknotify.Enable(newUDP(b), i, socknotify.EventOut, oneShot))
	}
	out := make([]socknotify.Notification[int], batch)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := p.Process(regs, out, -1); n != batch || err != nil {
			b.Fatal(n, err)
		}
	}
	for i := range regs {
		if regs[i].Result != nil {
			b.Fatal(regs[i].Result)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N*batch), "ns/notification")
}
