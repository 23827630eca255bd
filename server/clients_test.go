package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// clients are connections that send requests to an echo server, one at a time on each, and verify the answers.
type clients struct {
	addr  string
	conns int
	size  int           // bytes of a request
	rate  float64       // requests per second over all connections; 0 sends as fast as answers come
	last  time.Duration // how long requests are sent
	begun func()        // called when every connection is made, if not nil
}

// answers is what clients measured.
type answers struct {
	requests int64
	p50      time.Duration
	p90      time.Duration
	p99      time.Duration
}

// run returns an error if any connection failed. With a rate a latency is counted from when the request was due.
func (c clients) run(ctx context.Context) (answers, error) {
	ctx, cancel := context.WithTimeout(ctx, c.last+soon)
	defer cancel()
	conns := make([]net.Conn, c.conns)
	for i := range conns {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return answers{}, err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		conns[i] = conn
	}
	if c.begun != nil {
		c.begun()
	}
	latencies, failures := make([][]time.Duration, c.conns), make([]error, c.conns)
	begin := time.Now()
	var all sync.WaitGroup
	for i, conn := range conns {
		all.Go(func() { latencies[i], failures[i] = c.converse(conn, begin, i) })
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return answers{}, err
	}
	sorted := slices.Concat(latencies...)
	if len(sorted) == 0 {
		return answers{}, errors.New("no request was answered")
	}
	slices.Sort(sorted)
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] }
	return answers{int64(len(sorted)), at(50), at(90), at(99)}, nil
}

// converse sends the requests of connection i until the time is over.
func (c clients) converse(conn net.Conn, begin time.Time, i int) (latencies []time.Duration, err error) {
	request, answer := bytes.Repeat([]byte{byte(i)}, c.size), make([]byte, c.size)
	for n := 0; ; n++ {
		due := time.Now()
		if c.rate > 0 {
			due = begin.Add(time.Duration(float64(i+n*c.conns) / c.rate * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		if due.Sub(begin) >= c.last {
			return latencies, nil
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, err
		}
		if !bytes.Equal(answer, request) {
			return nil, fmt.Errorf("connection %d: request %d: a wrong answer", i, n)
		}
		latencies = append(latencies, time.Since(due))
	}
}
