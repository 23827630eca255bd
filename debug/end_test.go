package debug_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/sock"
)

// watched counts the writes that are under way.
type watched struct {
	http.ResponseWriter
	writing, made *atomic.Int64
}

func (w watched) Write(b []byte) (int, error) {
	w.writing.Add(1)
	defer w.writing.Add(-1)
	defer w.made.Add(1)
	return w.ResponseWriter.Write(b)
}

func (w watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A trace whose client does not read ends with the page, and with the server, as one does whose client reads.
func TestTraceEndsWithoutReader(t *testing.T) {
	for _, c := range []struct {
		name         string
		reads, close bool
	}{
		{"page closed", false, true},
		{"server shut down", false, false},
		{"server shut down under a reader", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPort[int](t)
			page := debug.New(debug.Port("p", p))
			defer page.Close()
			var writing, made atomic.Int64
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page.ServeHTTP(watched{w, &writing, &made}, r)
			})}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			fmt.Fprintf(client, "GET /trace HTTP/1.1\r\nHost: localhost\r\n\r\n")
			client.SetReadDeadline(time.Now().Add(soon))
			in := bufio.NewReader(client)
			if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if c.reads {
				go io.Copy(io.Discard, in)
			} else {
				// Enough that a write cannot be finished. One that goes on for so long is taken for such.
				for since, n := time.Now(), int64(-1); time.Since(since) < time.Second; time.Sleep(time.Millisecond) {
					for range 4000 {
						p.Post(1, 2)
					}
					if k := made.Load(); k != n || writing.Load() == 0 {
						since, n = time.Now(), k
					}
					p.Process(nil, make([]socknotify.Notification[int], 8000), 0)
				}
			}
			if c.close {
				page.Close()
			}
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown = %v", err)
				server.Close()
			}
			if err := <-served; err != http.ErrServerClosed {
				t.Error(err)
			}
		})
	}
}

// A query ends when its client has gone, whether it is at work or waits for another.
func TestQueryEndsWithClient(t *testing.T) {
	const sockets = 600
	p := newPort[int](t)
	var asked atomic.Int64
	stop := make(chan func(), 1)
	page := debug.New(debug.Port("p", p, func(k int) string {
		asked.Add(1)
		select {
		case f := <-stop:
			f()
		default:
		}
		return fmt.Sprint(k)
	}))
	defer page.Close()
	for i := range sockets {
		enable(t, p, udp(t), i, socknotify.EventIn)
	}
	look := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, request("GET", "/registrations?sort=key").WithContext(ctx))
		return w
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop <- cancel
	if w := look(ctx); w.Body.Len() != 0 {
		t.Errorf("a client that has gone is told %d bytes", w.Body.Len())
	}
	if n := asked.Load(); n >= sockets {
		t.Errorf("%d keys were asked for, of %d", n, sockets)
	}
	// One is at work, and another has waited for it.
	at, release := make(chan struct{}), make(chan struct{})
	stop <- func() { close(at); <-release }
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- look(t.Context()) }()
	<-at
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if w := look(ctx); w.Body.Len() != 0 {
		t.Errorf("a client that has gone is told %d bytes", w.Body.Len())
	}
	close(release)
	var all debug.Registrations
	if err := json.Unmarshal((<-first).Body.Bytes(), &all); err != nil || all.Matched != sockets {
		t.Errorf("%d, %v", all.Matched, err)
	}
}

// There is nothing after the last number that there can be.
func TestHistoryAfterTheLast(t *testing.T) {
	_, url := serve(t, debug.Port("p", newPort[int](t)))
	const last = "after=18446744073709551615"
	if h := get[debug.History](t, url+"history?"+last, 200); len(h.Samples) != 0 {
		t.Errorf("%+v", h)
	}
	if l := get[debug.Look](t, url+"look?"+last, 200); len(l.History.Samples) != 0 {
		t.Errorf("%+v", l.History)
	}
}

// Socket 0 is a socket like others to who asks for it, and not all of them.
func TestTraceOfSocketZero(t *testing.T) {
	p := newPort[int](t)
	_, url := serve(t, debug.Port("p", p))
	resp, err := http.Get(url + "trace?socket=0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s *sock.Socket
	for s = udp(t); s.Handle() == 0; s = udp(t) {
	}
	enable(t, p, s, 1, socknotify.EventOut)
	if err := p.Post(2, 3); err != nil { // which is of no socket
		t.Fatal(err)
	}
	out := make([]socknotify.Notification[int], 2)
	for n := 0; n < 2; { // the socket's, and the post
		k, err := p.Process(nil, out, soon)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	var e debug.Event
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Kind != "posted" || e.Data != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}
