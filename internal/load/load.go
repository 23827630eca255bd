// Package load puts load on an echo server and measures its answers. It is the load generator of
// the command, of bench and of the benchmarks of package server.
//
// A few workers share the connections. Each worker is one goroutine with its own port, receive
// buffer, histogram and heap of due times. So a connection costs a socket and an element of a
// slice, and a request allocates nothing.
//
// The stream of every connection is a part of one pattern (see [pattern]), so answers are compared
// with the requests without keeping the requests.
package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// The bounds of a [Config]. Connections differ by their phase in the pattern, which bounds their
// number.
const (
	MaxConnections = 60_000
	MaxSize        = 16 << 20
	MaxDepth       = 1024
	MaxRate        = 1e9
	MaxWorkers     = 1024
	MaxTime        = 10_000 * time.Hour // of every duration
)

// Config says what to send where.
type Config struct {
	Addr        string // host:port
	Connections int
	// Rate is requests per second over all connections, at times fixed in advance; 0 sends as fast
	// as answers come. The requests of a connection that has failed are left out.
	Rate  float64
	Size  int           // bytes of a request
	Depth int           // requests in flight per connection
	Think time.Duration // from an answer to the request that takes its place
	// Duration is how long requests are sent. Those that are due at the very beginning are sent in
	// any case.
	Duration time.Duration
	Timeout  time.Duration // for connecting, and the handshakes of TLS
	// Drain is how long Run waits for answers after the last request; 0 is two seconds.
	Drain   time.Duration
	Workers int    // 0: GOMAXPROCS
	Backend string // empty: the default
	// TLS, if not nil, is the configuration of encrypted connections. An empty ServerName is the
	// host of Addr.
	TLS *tls.Config

	// The fields below are for benchmarks.

	Active   int // how many of the connections send requests; 0: all
	Requests int // how many requests a connection sends; 0: as many as there is time for
	// Reconnect resets a connection after each answer and makes it again.
	Reconnect bool
	// Reset resets connections instead of closing them, so that none keeps its port in TIME_WAIT.
	Reset bool
	// Strict ends the run with the first error of a connection, which Run returns.
	Strict bool
	// Connected, if not nil, is called when the connections are made, before the first request.
	Connected func()
	// Answered, if not nil, returns where worker i counts the requests that were answered.
	Answered func(i int) *atomic.Int64
}

// check returns an error for fields that exclude each other.
func (c *Config) check() error {
	if c.Reconnect && (c.TLS != nil || c.Rate > 0 || c.Think > 0 || c.Requests > 0 || c.Depth > 1) {
		return errors.New("load: Reconnect is for one request at a time without a rate and without TLS")
	}
	return nil
}

// Totals are what was counted so far.
type Totals struct {
	Requests int64 // answered in full
	Errors   int64 // connections that failed
	Bytes    int64 // of the answers to Requests
	// Elapsed is from the first request on, until the last answer once all is over.
	Elapsed time.Duration
}

// Result is how a run went.
type Result struct {
	Totals
	Connections int // that were made
	// The quantiles of the latency. With a rate it starts when a request was due. So it includes
	// the time for which earlier answers delayed the request, and up to a millisecond by which the
	// port's timeout may be late (C4). Without a rate it starts when the first byte of the request
	// was sent.
	P50, P90, P99, P999, Max time.Duration
	// First is one of the errors.
	First error
}

// A job is what the workers share.
type job struct {
	Config
	ctx      context.Context
	stop     context.CancelFunc
	addrs    []netip.AddrPort
	table    pattern
	epoch    time.Time // of every time in nanoseconds
	begin    int64     // of sending
	until    int64     // end of sending
	interval float64   // nanoseconds between two requests of the schedule; 0 without a rate
	made     int64     // connections
	stopped  atomic.Bool
	workers  []*worker
}

// Run connects, sends, and waits for the last answers. It stops sending when the context is done,
// which is not an error. It returns an error if no connection could be made or a port failed;
// failures of single connections are in the Result. progress, if not nil, is called once a second.
func Run(ctx context.Context, cfg Config, progress func(Totals)) (Result, error) {
	if err := cfg.check(); err != nil {
		return Result{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	addrs, err := resolve(ctx, cfg.Addr)
	if ctx.Err() != nil {
		return Result{}, nil
	}
	if err != nil {
		return Result{}, err
	}
	j := &job{Config: cfg, ctx: ctx, stop: stop, addrs: addrs, table: newPattern(), epoch: time.Now()}
	j.Workers = min(cmp.Or(cfg.Workers, runtime.GOMAXPROCS(0)), cfg.Connections)
	j.Drain = cmp.Or(cfg.Drain, 2*time.Second)
	defer j.close()
	for i := range j.Workers {
		port, err := socknotify.New[*conn](socknotify.WithBackend(cfg.Backend))
		if err != nil {
			return Result{}, err
		}
		j.workers = append(j.workers, newWorker(j, port, i))
	}

	j.phase((*worker).connect, nil)
	for _, w := range j.workers {
		for i := range w.conns {
			if c := &w.conns[i]; c.sock != nil {
				c.place = j.made
				j.made++
			}
		}
	}
	if j.Connected != nil && j.made > 0 && !j.stopped.Load() {
		j.Connected()
	}
	j.begin = j.now()
	if j.made > 0 && !j.stopped.Load() {
		if cfg.Rate > 0 {
			j.interval = float64(time.Second) / cfg.Rate
		}
		j.until = j.begin + int64(cfg.Duration)
		j.phase((*worker).run, progress)
	}
	res, err := j.result()
	if err == nil && j.made == 0 && !j.stopped.Load() {
		err = fmt.Errorf("no connection to %s: %w", cfg.Addr, res.First)
	}
	return res, err
}

// phase runs part in every worker and returns when all are done. It wakes the workers when the
// context is done.
func (j *job) phase(part func(*worker), progress func(Totals)) {
	var working sync.WaitGroup
	for _, w := range j.workers {
		working.Go(func() { part(w) })
	}
	defer context.AfterFunc(j.ctx, func() {
		j.stopped.Store(true)
		for _, w := range j.workers {
			w.port.Post(nil, 0)
		}
	})()
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	var tick <-chan time.Time
	if progress != nil {
		tick = time.Tick(time.Second)
	}
	for {
		select {
		case <-done:
			return
		case <-tick:
			progress(j.totals())
		}
	}
}

func (j *job) now() int64 { return int64(time.Since(j.epoch)) }

// scheduled returns when the n-th request of a connection is due: the connections take turns.
func (j *job) scheduled(c *conn, n int64) int64 {
	n = c.place + n*j.made
	return j.begin + int64(min(float64(n)*j.interval, float64(2*MaxTime)))
}

func (j *job) totals() Totals {
	var t Totals
	for _, w := range j.workers {
		t.Requests += w.answered.Load()
		t.Errors += w.errors.Load()
	}
	t.Bytes = t.Requests * int64(j.Size)
	t.Elapsed = time.Duration(j.now() - j.begin)
	return t
}

func (j *job) result() (Result, error) {
	res := Result{Totals: j.totals(), Connections: int(j.made)}
	all, end := newHistogram(), j.begin
	var err error
	for _, w := range j.workers {
		all.merge(w.latency)
		end = max(end, w.end)
		res.First = cmp.Or(res.First, w.first)
		err = cmp.Or(err, w.broken)
	}
	res.Elapsed = time.Duration(end - j.begin)
	at := func(permille int64) time.Duration { return time.Duration(all.at(permille)) }
	res.P50, res.P90, res.P99, res.P999 = at(500), at(900), at(990), at(999)
	res.Max = time.Duration(all.longest)
	return res, err
}

func (j *job) close() {
	for _, w := range j.workers {
		w.port.Close()
		for i := range w.conns {
			c := &w.conns[i]
			if c.tls != nil {
				c.tls.close()
			}
			if c.sock != nil {
				c.sock.Close()
			}
		}
	}
}

// resolve returns the addresses to try, those of IPv4 first. An empty host is localhost.
func resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", cmp.Or(host, "localhost"))
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	slices.SortStableFunc(addrs, func(a, b netip.AddrPort) int {
		return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen())
	})
	return slices.Compact(addrs), nil
}
