package metrics_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
)

// How long 100 calls took: 90 of them at most 1 ms, and 10 between 5 and 10 ms.
func ExampleHistogram_Quantile() {
	var h metrics.Histogram
	for i, bound := range metrics.Bounds() {
		switch bound {
		case time.Millisecond:
			h.Buckets[i] = 90
		case 10 * time.Millisecond:
			h.Buckets[i] = 10
		}
	}
	fmt.Println(h.Count(), "calls")
	fmt.Println("the middle one:", h.Quantile(0.5) <= time.Millisecond)
	fmt.Println("the slowest in a hundred:", h.Quantile(0.99))
	// Output:
	// 100 calls
	// the middle one: true
	// the slowest in a hundred: 9.5ms
}

// The difference of two readings of Stats has the calls between them.
func ExampleHistogram_Sub() {
	s := &park.Server{TimeCalls: true, Handler: func(c net.Conn) error {
		_, err := io.CopyN(c, c, 1)
		return err
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	// calls sends requests, and waits until their calls have been measured.
	calls := func(n, all uint64) metrics.Histogram {
		for range n {
			client.Write([]byte("x"))
			client.Read(make([]byte, 1))
		}
		for s.Stats().CallTime.Count() < all {
			time.Sleep(time.Millisecond) // it is counted soon; an example has no testing.TB
		}
		return s.Stats().CallTime
	}
	earlier := calls(3, 3)
	now := calls(2, 5)
	recent := now.Sub(earlier)
	fmt.Println(recent.Count(), "of", now.Count(), "calls")

	client.Close()
	s.Close()
	<-served
	s.Shutdown(context.Background())
	// Output: 2 of 5 calls
}
