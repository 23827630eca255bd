package debug_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/server"
)

// The page has the goroutines and the memory of the process, now and once a second.
func TestProcess(t *testing.T) {
	t.Parallel() // it waits
	s := &server.Server[struct{}]{Handler: echo{}}
	_, url := serve(t, debug.Server("shop", s))
	const many = 500
	end := make(chan struct{})
	defer func() { close(end) }()
	for range many {
		go func() { <-end }()
	}
	ballast := make([]byte, 64<<20)
	p := get[debugdata.Process](t, url+"process", 200)
	if p.Counts.Goroutines < many || p.Counts.Goroutines > 100*many {
		t.Errorf("%d goroutines; at least %d run", p.Counts.Goroutines, many)
	}
	c := p.Counts
	if c.Objects < uint64(len(ballast)) || c.Memory < c.Objects+c.Stacks || c.Stacks < many*1024 {
		t.Errorf("%+v; there is a block of %d bytes", c, len(ballast))
	}
	runtime.KeepAlive(ballast)
	if p.Observed.IsZero() || p.Time.Before(p.Observed) || len(p.Samples) == 0 || p.Samples[0].Number != 0 {
		t.Errorf("%+v", p)
	}
	runtime.GC()
	last := p.Samples[len(p.Samples)-1].Number
	eventually(t, func() bool { // both kinds of views have it, with samples of its own
		after := strconv.FormatUint(last, 10)
		v := get[debugdata.ServerView](t, url+"server?after=18446744073709551615&process="+after, 200)
		return len(v.Samples) == 0 && len(v.Process.Samples) > 0 && v.Process.Samples[0].Number == last+1 &&
			v.Process.Samples[0].Goroutines >= many && v.Process.Counts.Collections > p.Counts.Collections
	})
	addr, stop := start(t, s)
	defer stop()
	say(t, addr)
	ports := get[debugdata.Servers](t, url+"servers", 200).Servers[0].Ports
	if v := get[debugdata.View](t, url+"view?process=0&port="+ports[0], 200); v.Process.Counts.Goroutines < many || v.Process.Samples[0].Number != 1 {
		t.Errorf("%+v", v.Process)
	}
	get[debugdata.Failure](t, url+"server?process=x", 400)
	get[debugdata.Failure](t, url+"process?after=x", 400)
}
