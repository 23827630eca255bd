package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
)

// Go's client gets a request answered, the connection is parked, and the next request uses the same connection.
func TestParked(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		s := &Server{Linger: -1, Server: handler(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RemoteAddr, r.TLS != nil)
		})}
		url, c := serve(t, s, secure), client(t)
		first := ""
		for i := range 5 {
			resp, text := get(t, c, url)
			if i == 0 {
				first = text
			}
			if resp.ProtoMajor != 2 || text != first || !strings.HasSuffix(text, fmt.Sprint(secure)) {
				t.Fatalf("%s: %q, want %q", resp.Proto, text, first)
			}
			until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
		}
	})
}

// Many requests at once on one connection, with bodies in both directions that are larger than all windows.
func TestBodies(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, r.Body)
		})}
		url, c := serve(t, s, secure), client(t)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				body := bytes.Repeat([]byte{byte(i), 1, 2}, i*i*i*300)
				resp, err := c.Post(url, "text/plain", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(b, body) {
					t.Errorf("%d bytes, want %d: %v", len(b), len(body), err)
				}
			})
		}
		all.Wait()
	})
}

// Trailers in both directions, informational responses, and status 100 before the body is read.
func TestTrailersAndInformational(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "Declared")
			fmt.Fprintf(w, "%s %s", b, r.Trailer.Get("Mine"))
			w.Header().Set("Declared", "1")
			w.Header().Set(http.TrailerPrefix+"Other", "2")
		})}
		url, c := serve(t, s, secure), client(t)
		var hints []int
		continued := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			},
			Got100Continue: func() { continued = true },
		})
		req, _ := http.NewRequestWithContext(ctx, "POST", url, io.MultiReader(strings.NewReader("body")))
		req.Header.Set("Expect", "100-continue")
		req.Trailer = http.Header{"Mine": {"3"}}
		c.Transport.(*http.Transport).ExpectContinueTimeout = timeout
		resp, err := c.Do(req)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		if string(b) != "body 3" || resp.Trailer.Get("Declared") != "1" || resp.Trailer.Get("Other") != "2" {
			t.Errorf("%q, trailers %v", b, resp.Trailer)
		}
		if len(hints) == 0 || hints[0] != 103 || !continued {
			t.Errorf("informational %v, continued %t", hints, continued)
		}
	})
}

// A handler that panics costs its stream, and not the connection.
func TestPanic(t *testing.T) {
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/panic":
			w.Write([]byte("x"))
			http.NewResponseController(w).Flush()
			panic("x")
		}
		fmt.Fprint(w, r.RemoteAddr)
	})}
	url, c := serve(t, s, false), client(t)
	_, before := get(t, c, url)
	for _, path := range []string{"/abort", "/panic"} {
		resp, err := c.Get(url + path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if _, after := get(t, c, url); after != before {
		t.Errorf("the connection was closed")
	}
}

// A canceled request cancels the context of its handler, which fails to read and to write then.
func TestCancel(t *testing.T) {
	ended := make(chan error, 2)
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, err := r.Body.Read(make([]byte, 1))
		ended <- err
		_, err = w.Write(make([]byte, 1<<20))
		ended <- err
	})}
	url, c := serve(t, s, false), client(t)
	pr, pw := io.Pipe()
	defer pw.Close()
	resp, err := c.Post(url, "", pr)
	must(t, err)
	resp.Body.Close() // resets the stream
	for range 2 {
		if err := <-ended; err == nil || err == io.EOF {
			t.Errorf("got %v", err)
		}
	}
	until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
}

// The timeouts of the server and of http.ResponseController end reading and writing.
func TestTimeouts(t *testing.T) {
	for _, own := range []bool{false, true} {
		read := make(chan error, 1)
		hs := handler(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if own {
				rc.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			}
			_, err := io.ReadAll(r.Body)
			read <- err
			if own {
				rc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			}
			<-r.Context().Done()
		})
		if !own {
			hs.ReadTimeout, hs.WriteTimeout, hs.IdleTimeout = 10*time.Millisecond, 300*time.Millisecond, timeout
		}
		url, c := serve(t, &Server{Server: hs}, false), client(t)
		pr, pw := io.Pipe()
		_, err := c.Post(url, "", pr)
		if err == nil {
			t.Error("the request has succeeded")
		}
		pw.Close()
		if err := <-read; !isTimeout(err) {
			t.Errorf("read: %v", err)
		}
	}
}

// A connection that is idle for too long ends with GOAWAY, whether it is parked or not, and so does one at Shutdown.
// Streams that are open then are served to their end.
func TestEnds(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		for _, linger := range []time.Duration{-1, time.Hour} { // with the second it ends before it would be parked
			hs := handler(echo)
			hs.IdleTimeout = 30 * time.Millisecond
			s := &Server{Server: hs, Linger: linger}
			url, c := serve(t, s, secure), client(t)
			get(t, c, url)
			until(t, "the connection has ended", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.conns) == 0
			})
			get(t, c, url) // on another connection
		}
		for _, linger := range []time.Duration{-1, timeout} {
			begun, proceed := make(chan bool), make(chan bool)
			s := &Server{Linger: linger, Server: handler(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					begun <- true
					<-proceed
				}
				fmt.Fprint(w, "done")
			})}
			url, c, idle := serve(t, s, secure), client(t), client(t)
			get(t, idle, url)
			answer := make(chan string)
			go func() {
				resp, err := c.Get(url + "/slow")
				if err != nil {
					answer <- err.Error()
					return
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				answer <- string(b)
			}()
			<-begun
			if linger < 0 {
				until(t, "both connections are parked", func() bool { return s.Stats().Parked == 2 })
			}
			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := s.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			cancel()
			close(proceed)
			must(t, s.Shutdown(t.Context()))
			if got := <-answer; got != "done" {
				t.Errorf("answer %q", got)
			}
		}
	})
}

// A connection that has begun before Shutdown has its first requests answered, and then ends. One that stays silent ends
// after five seconds.
func TestShutdownAnswersFirstRequest(t *testing.T) {
	for _, linger := range []time.Duration{-1, timeout} { // parked, and not
		for _, silent := range []bool{false, true} {
			if silent {
				long.Only(t, "two times five seconds")
			}
			s := &Server{Linger: linger, Server: handler(echo)}
			addr := strings.TrimPrefix(serve(t, s, false), "http://")
			c, err := client(t).Transport.(*http.Transport).NewClientConn(t.Context(), "http", addr) // RoundTrip does not try again
			must(t, err)
			defer c.Close()
			until(t, "the server has received SETTINGS", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for c := range s.conns {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.opening > awaitSettings && (linger > 0 || c.reader == readerParked)
				}
				return false
			})
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(t.Context()) }()
			until(t, "Shutdown has begun", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.closing
			})
			ask := func(text string) (answer []byte, err error) {
				r, err := http.NewRequest("POST", "http://"+addr, strings.NewReader(text))
				must(t, err)
				resp, err := c.RoundTrip(r)
				if err == nil {
					defer resp.Body.Close()
					answer, err = io.ReadAll(resp.Body)
				}
				return answer, err
			}
			if !silent {
				if answer, err := ask("first"); err != nil || string(answer) != "first" {
					t.Errorf("%q, %v", answer, err)
				}
			}
			must(t, await.Receive(t, "the end of Shutdown", ended))
			if answer, err := ask("second"); err == nil {
				t.Errorf("%q after Shutdown", answer)
			}
		}
	}
}

// Hijack is refused, and full duplex works.
func TestController(t *testing.T) {
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		b := make([]byte, 10)
		rc.Flush() // the client waits for headers
		for {
			n, err := r.Body.Read(b)
			if err != nil {
				return
			}
			w.Write(b[:n])
			if err := rc.Flush(); err != nil {
				t.Error(err)
			}
		}
	})}
	url, c := serve(t, s, true), client(t)
	pr, pw := io.Pipe()
	resp, err := c.Post(url, "", pr)
	must(t, err)
	for range 100 {
		pw.Write([]byte("ab"))
		b := make([]byte, 2)
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "ab" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	pw.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
}

// A handler that writes more than its Content-Length gets an error, as in HTTP/1.1, and nothing of that write is sent.
func TestContentLength(t *testing.T) {
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
		if _, err := io.WriteString(w, "d"); err != http.ErrContentLength {
			t.Error(err)
		}
	})}
	if _, text := get(t, client(t), serve(t, s, false)); text != "abc" {
		t.Errorf("%q", text)
	}
}
