package http2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
)

func describe(stream uint32, what string) string { return fmt.Sprint(stream, " ", what) }

// synced waits until the server has handled everything that was sent.
func (p *peer) synced() {
	p.t.Helper()
	p.WritePing(false, [8]byte{})
	must(p.t, p.send())
	p.want("PING")
}

// A Read after the handler has returned does not take the discarded part of a body for its end.
func TestReadAfterHandler(t *testing.T) {
	proceed, bodies := make(chan bool), make(chan io.Reader, 1)
	s := &Server{Server: handler(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/whole" {
			io.ReadAll(r.Body)
		}
		<-proceed
		bodies <- r.Body
	})}
	p := dial(t, serve(t, s, false))
	for i, want := range []error{http.ErrBodyReadAfterClose, io.EOF} {
		p.open(id(i), []string{"/", "/whole"}[i], false)
		p.WriteData(id(i), true, []byte("body"))
		p.synced()
		proceed <- true
		p.next()
		until(t, "the handler has returned", func() bool { // which is after its response was sent
			s.mu.Lock()
			defer s.mu.Unlock()
			running := 0
			for c := range s.conns {
				c.mu.Lock()
				running += c.running
				c.mu.Unlock()
			}
			return running == 0
		})
		if n, err := (<-bodies).Read(make([]byte, 10)); n != 0 || err != want {
			t.Errorf("%d bytes, %v, want %v", n, err, want)
		}
	}
}

// Close of a body wakes a Read of another goroutine, which fails also if the body ends later.
func TestCloseWakesRead(t *testing.T) {
	read := make(chan error)
	s := &Server{Server: handler(func(_ http.ResponseWriter, r *http.Request) {
		result := make(chan error)
		go func() {
			_, err := r.Body.Read(make([]byte, 10))
			result <- err
		}()
		await.Pause(time.Millisecond) // so that it mostly waits; the result must be the same if it does not
		r.Body.Close()
		read <- <-result
	})}
	p := dial(t, serve(t, s, false))
	p.request(1, false)
	must(t, p.send())
	if err := await.Receive(t, "Read returns", read); err != http.ErrBodyReadAfterClose {
		t.Error(err)
	}
	p.want("1 status 200", "1 reset NO_ERROR")
}

// Status 100, which the first Read of a body causes, never follows the final status that another goroutine sends.
func TestContinueBeforeStatus(t *testing.T) {
	const rounds, streams = 50, 200
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		var reading sync.WaitGroup
		reading.Go(func() { r.Body.Read(make([]byte, 1)) })
		http.NewResponseController(w).Flush()
		reading.Wait()
	})}
	p := dial(t, serve(t, s, false))
	for round := range rounds {
		for i := range streams {
			p.request(id(round*streams+i), false, "expect", "100-continue")
			p.WriteData(id(round*streams+i), true, []byte("x"))
		}
		must(t, p.send())
		final := make(map[uint32]bool)
		for ended := 0; ended < streams; {
			f, err := p.ReadFrame()
			must(t, err)
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				if status := f.PseudoValue("status"); final[f.StreamID] {
					t.Fatalf("stream %d: status %s after the final one", f.StreamID, status)
				} else if status == "200" {
					final[f.StreamID] = true
				}
			case *http2.DataFrame:
				if f.StreamEnded() {
					ended++
				}
			}
		}
	}
}

// ConnState is called with StateIdle when the last stream has ended, at the latest before the connection is parked, although
// the handler has not returned.
func TestIdleBeforeHandlerReturns(t *testing.T) {
	var mu sync.Mutex
	var states []http.ConnState
	proceed := make(chan bool)
	hs := handler(func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush() // a response to HEAD ends by that
		<-proceed
	})
	hs.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, state)
	}
	s := &Server{Server: hs, Linger: -1}
	p := dial(t, serve(t, s, false))
	for i := range 2 {
		p.openPart(id(i), true, true, ":method", "HEAD", ":scheme", "http", ":authority", "x", ":path", "/")
		must(t, p.send())
		p.want(describe(id(i), "status 200"))
		until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
	}
	want := []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateActive, http.StateIdle,
		http.StateActive, http.StateIdle}
	mu.Lock()
	if !slices.Equal(states, want) {
		t.Errorf("got %v, want %v", states, want)
	}
	mu.Unlock()
	proceed <- true
	proceed <- true
}

// Spaces around the value of a response's header field, which HTTP/2 forbids, are not sent.
func TestSpacesAroundValue(t *testing.T) {
	s := &Server{Server: handler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Spaces", " \ta b\t ")
	})}
	resp, _ := get(t, client(t), serve(t, s, false))
	if got := resp.Header.Get("Spaces"); got != "a b" {
		t.Errorf("%q", got)
	}
}

// A Write that has failed does not claim its bytes.
func TestFailedWrite(t *testing.T) {
	type result struct {
		n   int
		err error
	}
	wrote := make(chan result)
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		n, err := w.Write(make([]byte, 1<<20))
		wrote <- result{n, err}
	})}
	p := dial(t, serve(t, s, false))
	p.request(1, true)
	p.WriteRSTStream(1, 8)
	must(t, p.send())
	if r := <-wrote; r.n != 0 || r.err == nil || errors.Is(r.err, io.EOF) {
		t.Errorf("%d, %v", r.n, r.err)
	}
}
