package http2

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// impossible returns what the states of the server's connections and streams must not be, or "".
func (s *Server) impossible() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if what := c.impossible(); what != "" {
			return what
		}
	}
	return ""
}

func (c *conn) impossible() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := len(c.streams)
	switch {
	case readerEnds[c.reader]&(1<<c.ending) == 0:
		return fmt.Sprintf("reader %d, ending %d", c.reader, c.ending)
	case open > 0 && (c.opening < awaitAck || c.ending == ended):
		return fmt.Sprintf("%d streams, opening %d, ending %d", open, c.opening, c.ending)
	case c.headPart && c.partSince == 0:
		return "a part of a header block without a part"
	}
	for i, st := range c.streams {
		byHandler, waits := st.holder == heldByHandler, st.holder == heldByWait
		switch {
		case i > 0 && c.streams[i-1].id >= st.id, st.id > c.last:
			return fmt.Sprintf("stream %d, the highest is %d", st.id, c.last)
		case st.err != nil, st.gotEnd && st.sentEnd:
			return fmt.Sprintf("stream %d is open: got its end %t, sent it %t, %v", st.id, st.gotEnd, st.sentEnd, st.err)
		case byHandler != (st.taker == nil), waits != (st.wait != nil), st.input != nil && !st.duplex():
			return fmt.Sprintf("stream %d: holder %d, taker %v, waits %t, input %t", st.id, st.holder, st.taker, st.wait != nil, st.input != nil)
		case st.exchange == &handled && byHandler:
			return fmt.Sprintf("stream %d has no holder", st.id)
		}
	}
	return ""
}

// watchStates fails the test if a state is impossible, until the test ends.
func watchStates(t testing.TB, s *Server) {
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			if what := s.impossible(); what != "" {
				t.Error(what)
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

func panicked(f func()) (p bool) {
	defer func() { p = recover() != nil }()
	f()
	return false
}

// The transitions that the tables of conn.go and stream.go permit happen, and any other one panics.
func TestTransitions(t *testing.T) {
	readers := map[reader][]reader{
		readerReads:  {readerReads, readerParked, readerDrains, readerGone},
		readerParked: {readerReads, readerCalled, readerGone},
		readerCalled: {readerReads, readerCalled, readerGone},
		readerDrains: {readerGone},
	}
	for from := readerReads; from <= readerGone; from++ {
		for to := readerReads; to <= readerGone; to++ {
			may := false
			for _, next := range readers[from] {
				may = may || next == to
			}
			if c := (&conn{reader: from}); panicked(func() { c.setReader(to) }) == may || may && c.reader != to {
				t.Errorf("reader %d to %d", from, to)
			}
		}
	}
	for from := endNot; from <= ended; from++ {
		for to := endNot; to <= ended; to++ {
			may := to >= from && from != ended
			if c := (&conn{ending: from}); panicked(func() { c.setEnding(to) }) == may || may && c.ending != to {
				t.Errorf("ending %d to %d", from, to)
			}
		}
	}
	for from := awaitPreface; from <= opened; from++ {
		for to := awaitPreface; to <= opened; to++ {
			if c := (&conn{opening: from}); panicked(func() { c.setOpening(to) }) == (to == from+1) {
				t.Errorf("opening %d to %d", from, to)
			}
		}
	}
	for from := heldByHandler; from <= heldByPlainTunnel; from++ {
		for to := heldByHandler; to <= heldByPlainTunnel; to++ {
			may := from == heldByHandler && to != heldByHandler || from == heldByWait && to == heldByHandler
			if st := (&stream{holder: from}); panicked(func() { st.setHolder(to, nil) }) == may || may && st.holder != to {
				t.Errorf("holder %d to %d", from, to)
			}
		}
	}
	for name, st := range map[string]*stream{"twice": {gotEnd: true, sentEnd: true}, "after the end": {err: errStreamEnded}} {
		if !panicked(st.receivedEnd) || !panicked(st.queuedEnd) {
			t.Errorf("the end of a stream, %s, does not panic", name)
		}
	}
}

// A goroutine of a handler that waits in Write sends nothing more when another one has ended the response.
func TestEndWhileWriteWaits(t *testing.T) {
	full, opened, result := make(chan bool), make(chan bool), make(chan error)
	s := &Server{Server: handler(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		st := w.(*responseWriter).st
		go func() { result <- st.send(nil, sockettest.Sequence(0, flow.Initial+10), false) }()
		<-full
		if err := st.send(nil, nil, true); err != nil {
			t.Error(err)
		}
		close(opened)
		if err := <-result; err != errStreamEnded {
			t.Errorf("got %v", err)
		}
	})}
	p := dial(t, serve(t, s, false))
	p.request(1, false)
	must(t, p.send())
	p.want("1 status 200")
	p.dataOf(1, 0, flow.Initial)
	close(full)
	<-opened
	p.WriteWindowUpdate(1, 100)
	p.WriteWindowUpdate(0, 100)
	must(t, p.send())
	p.want(`1 data "" end true`, "1 reset NO_ERROR")
}
