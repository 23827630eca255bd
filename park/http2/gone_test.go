package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A writing is a way in which handlers send a part of a response.
type writing struct {
	name string
	once func(w http.ResponseWriter) error
}

// writings are the ways to send that report errors. In some only the next call can: what it has
// written before was in a buffer.
var writings = []writing{
	{"Write and Flush", func(w http.ResponseWriter) error {
		_, err := w.Write([]byte("data: x\n\n"))
		w.(http.Flusher).Flush()
		return err
	}},
	{"WriteString and Flush", func(w http.ResponseWriter) error {
		_, err := io.WriteString(w, "data: x\n\n")
		w.(http.Flusher).Flush()
		return err
	}},
	{"Write and ResponseController.Flush", func(w http.ResponseWriter) error {
		_, err := w.Write([]byte("data: x\n\n"))
		http.NewResponseController(w).Flush()
		return err
	}},
	{"Write and FlushError", func(w http.ResponseWriter) error {
		w.Write([]byte("data: x\n\n"))
		return w.(interface{ FlushError() error }).FlushError()
	}},
	{"FlushError", func(w http.ResponseWriter) error {
		return w.(interface{ FlushError() error }).FlushError()
	}},
	{"ResponseController.Flush", func(w http.ResponseWriter) error {
		return http.NewResponseController(w).Flush()
	}},
	{"Copy and Flush", func(w http.ResponseWriter) error {
		_, err := io.Copy(w, strings.NewReader("data: x\n\n"))
		w.(http.Flusher).Flush()
		return err
	}},
	{"Write", func(w http.ResponseWriter) error {
		_, err := w.Write(make([]byte, bodyBuffer/2))
		return err
	}},
	{"large Write", func(w http.ResponseWriter) error {
		_, err := w.Write(make([]byte, 10*bodyBuffer))
		return err
	}},
}

// departures are the ways in which a client gives up a stream.
var departures = []struct {
	name   string
	depart func(p *peer)
}{
	{"RST_STREAM", func(p *peer) {
		p.WriteRSTStream(1, http2.ErrCodeCancel)
		must(p.t, p.send())
	}},
	{"closed", func(p *peer) { p.conn.Close() }},
	{"GOAWAY, closed", func(p *peer) {
		p.WriteGoAway(0, http2.ErrCodeNo, nil)
		must(p.t, p.send())
		p.conn.Close()
	}},
}

// servers runs a test with this package's server, and with net/http's.
func servers(t *testing.T, f func(t *testing.T, start func(hs *http.Server) (url string))) {
	t.Run("park", func(t *testing.T) {
		f(t, func(hs *http.Server) string {
			url, _ := start(t, parked(hs), hs, false)
			return url
		})
	})
	t.Run("net/http", func(t *testing.T) {
		f(t, func(hs *http.Server) string {
			url, _ := start(t, hs, hs, false)
			return url
		})
	})
}

// waitGone waits until the stream of a request has ended. net/http cancels the context a moment
// before its writes fail.
func waitGone(t *testing.T, w http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	if _, ours := w.(*responseWriter); ours {
		return
	}
	rc := http.NewResponseController(w)
	until(t, "a flush by net/http fails", func() bool { return rc.Flush() != nil })
}

// Once the client is gone, a write fails, or the write after a flush, exactly as with net/http, and
// then all do.
func TestWritesToGoneClient(t *testing.T) {
	const calls = 6
	outcomes := make(map[string]string) // of the first server
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		got := make(chan string, 1)
		url := start(handler(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			waitGone(t, w, r)
			outcome := ""
			for _, how := range writings {
				if r.URL.Path != "/"+strings.ReplaceAll(how.name, " ", "") {
					continue
				}
				for range calls {
					outcome += fmt.Sprint(how.once(w) == nil, " ")
				}
			}
			got <- outcome
		}))
		for _, how := range writings {
			for _, d := range departures {
				p := dial(t, url)
				p.open(1, "/"+strings.ReplaceAll(how.name, " ", ""), true)
				must(t, p.send())
				p.want("1 status 200")
				d.depart(p)
				name, outcome := how.name+", "+d.name, <-got
				if first, ok := outcomes[name]; ok && outcome != first {
					t.Errorf("%s: success %s, the other server %s", name, outcome, first)
				}
				if outcomes[name] = outcome; !strings.HasSuffix(outcome, "false false ") {
					t.Errorf("%s: success %s", name, outcome)
				}
				p.conn.Close()
			}
		}
	})
}

// A handler that sends events until that fails ends when its client is gone, and gives back its
// place among the streams.
func TestEventsToGoneClient(t *testing.T) {
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for _, how := range writings {
			stop, ended := make(chan struct{}), make(chan error, 1)
			hs := handler(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					return
				}
				http.NewResponseController(w).Flush()
				var err error
				for err == nil {
					select {
					case <-stop:
						return
					default:
						err = how.once(w)
					}
				}
				ended <- err
			})
			hs.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1}
			url := start(hs)
			t.Cleanup(func() { close(stop) }) // before the server ends
			wait := func(what string) {
				t.Helper()
				until(t, how.name+" fails after "+what, func() bool { return len(ended) == 1 })
				<-ended
			}
			p := dial(t, url)
			p.open(1, "/", true)
			must(t, p.send())
			p.want("1 status 200")
			departures[0].depart(p)
			p.open(3, "/other", true)
			must(t, p.send())
			wait("RST_STREAM")
			for got := ""; got != "3 status 200"; got = p.next() {
				if got == "the end" {
					t.Fatalf("%s: no place for another stream", how.name)
				}
			}
			for _, d := range departures[1:] {
				p = dial(t, url)
				p.open(1, "/", true)
				must(t, p.send())
				p.want("1 status 200")
				d.depart(p)
				wait(d.name)
			}
			c := client(t)
			resp, err := c.Get(url)
			must(t, err)
			resp.Body.Close()
			wait("Body.Close")
			resp, err = c.Get(url + "/other") // on the same connection
			must(t, err)
			resp.Body.Close()
		}
	})
}

// A response to HEAD ends with its headers. A flush after that fails, as with net/http, and writes
// succeed.
func TestFlushAfterHead(t *testing.T) {
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		url := start(handler(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			rc.Flush()
			waitGone(t, w, r)
			if rc.Flush() == nil {
				t.Error("the second flush has succeeded")
			}
			if _, err := w.Write(make([]byte, 10*bodyBuffer)); err != nil {
				t.Errorf("write: %v", err)
			}
		}))
		resp, err := client(t).Head(url)
		must(t, err)
		resp.Body.Close()
	})
}

// After a write deadline all writes fail with os.ErrDeadlineExceeded.
func TestWriteDeadlineError(t *testing.T) {
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for _, by := range []string{"WriteTimeout", "future deadline", "past deadline"} {
			for _, how := range writings {
				got := make(chan error, 3)
				hs := handler(func(w http.ResponseWriter, r *http.Request) {
					rc := http.NewResponseController(w)
					rc.Flush()
					switch by {
					case "future deadline":
						rc.SetWriteDeadline(time.Now().Add(time.Millisecond))
					case "past deadline":
						rc.SetWriteDeadline(time.Now().Add(-time.Second))
					}
					waitGone(t, w, r)
					how.once(w) // what is in a buffer may succeed
					how.once(w)
					how.once(w)
					for range cap(got) {
						got <- how.once(w)
						rc.SetWriteDeadline(time.Now().Add(timeout)) // which comes too late
					}
				})
				if by == "WriteTimeout" {
					hs.WriteTimeout = 10 * time.Millisecond
				}
				p := dial(t, start(hs))
				p.request(1, true)
				must(t, p.send())
				for f := p.next(); f != "1 reset INTERNAL_ERROR"; f = p.next() {
					if f != "1 status 200" { // which net/http may leave out
						t.Fatalf("%s, %s: %s", by, how.name, f)
					}
				}
				for range cap(got) {
					if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s, %s: %v", by, how.name, err)
					}
				}
			}
		}
	})
}

// A write that waits for the client's window fails with os.ErrDeadlineExceeded at the deadline,
// whose error a copy returns.
func TestWaitingWriteDeadlineError(t *testing.T) {
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for _, own := range []bool{false, true} {
			got := make(chan error, 1)
			hs := handler(func(w http.ResponseWriter, _ *http.Request) {
				if rc := http.NewResponseController(w); own {
					rc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				}
				_, err := io.Copy(w, bytes.NewReader(make([]byte, 1<<20)))
				got <- err
			})
			if !own {
				hs.WriteTimeout = 10 * time.Millisecond
			}
			p := dial(t, start(hs)) // with windows of 64 KiB
			p.request(1, true)
			must(t, p.send())
			if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("set by the handler %t: %v", own, err)
			}
		}
	})
}

// At a read deadline Read returns what has arrived, and then fails with os.ErrDeadlineExceeded,
// also when more arrives. A body that had arrived before the deadline ends by io.EOF.
func TestReadDeadlineError(t *testing.T) {
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for _, by := range []string{"ReadTimeout", "future deadline", "past deadline"} {
			for _, whole := range []bool{false, true} {
				if whole && by == "ReadTimeout" {
					continue // it may come before the body
				}
				begin, passed, proceed := make(chan bool), make(chan bool), make(chan bool)
				got := make(chan string, 2)
				hs := handler(func(w http.ResponseWriter, r *http.Request) {
					read := func() {
						b, err := io.ReadAll(r.Body)
						if by == "ReadTimeout" {
							b = nil // the timeout may have come first
						}
						deadline := errors.Is(err, os.ErrDeadlineExceeded)
						got <- fmt.Sprintf("%q, deadline %t, %t", b, deadline, err != nil)
					}
					rc := http.NewResponseController(w)
					if <-begin; by == "past deadline" {
						rc.SetReadDeadline(time.Now().Add(-time.Second))
					} else if by == "future deadline" {
						rc.SetReadDeadline(time.Now().Add(time.Millisecond))
					}
					read()
					passed <- true
					<-proceed
					read()
				})
				if by == "ReadTimeout" { // which bounds other times too, unless they are set
					hs.ReadTimeout = 10 * time.Millisecond
					hs.ReadHeaderTimeout, hs.IdleTimeout = timeout, timeout
				}
				p := dial(t, start(hs))
				p.request(1, false)
				p.WriteData(1, whole, []byte("one"))
				p.synced()
				begin <- true
				if <-passed; !whole {
					p.WriteData(1, true, []byte("two"))
				}
				p.synced()
				proceed <- true
				want := []string{`"one", deadline true, true`, `"", deadline true, true`}
				switch {
				case by == "ReadTimeout":
					want[0] = want[1]
				case whole:
					want = []string{`"one", deadline false, false`, `"", deadline false, false`}
				}
				for i, want := range want {
					if got := <-got; got != want {
						t.Errorf("%s, whole %t, read %d: %s, want %s", by, whole, i, got, want)
					}
				}
			}
		}
	})
}
