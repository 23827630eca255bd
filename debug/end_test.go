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
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// A countingWriter counts the writes and flushes that are in progress, those that were made, and the
// deadlines that were set for one in progress.
type countingWriter struct {
	http.ResponseWriter
	writing, made, limited *atomic.Int64
}

func (w countingWriter) SetWriteDeadline(at time.Time) error {
	if w.writing.Load() > 0 {
		w.limited.Add(1)
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

func (w countingWriter) Write(b []byte) (int, error) {
	w.writing.Add(1)
	defer w.writing.Add(-1)
	defer w.made.Add(1)
	return w.ResponseWriter.Write(b)
}

func (w countingWriter) FlushError() error {
	w.writing.Add(1)
	defer w.writing.Add(-1)
	defer w.made.Add(1)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A trace ends when the page is closed and when the server is shut down, also if its client does not read.
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
			t.Parallel() // it waits
			p := newPort[int](t)
			page := debug.New(debug.Port("p", p))
			defer page.Close()
			var writing, made, limited atomic.Int64
			server := &http.Server{
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					page.ServeHTTP(countingWriter{w, &writing, &made, &limited}, r)
				}),
				ConnContext: func(ctx context.Context, c net.Conn) context.Context {
					c.(*net.TCPConn).SetWriteBuffer(4 << 10) // so that a few events fill it
					return ctx
				},
			}
			l := listen(t)
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			client.(*net.TCPConn).SetReadBuffer(4 << 10)
			fmt.Fprintf(client, "GET /trace HTTP/1.1\r\nHost: localhost\r\n\r\n")
			client.SetReadDeadline(time.Now().Add(timeout))
			in := bufio.NewReader(client)
			if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if c.reads {
				go io.Copy(io.Discard, in)
			} else {
				// Cause more events than the buffers hold. A write that takes this long is blocked.
				began := time.Now()
				for since, n := time.Now(), int64(-1); time.Since(since) < time.Second; await.Pause(time.Millisecond) {
					for range 4000 {
						p.Post(1, 2)
					}
					if time.Since(began) > timeout {
						t.Fatal("no write was blocked")
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
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown = %v", err)
				server.Close()
			}
			if err := <-served; err != http.ErrServerClosed {
				t.Error(err)
			}
			if !c.reads && limited.Load() == 0 {
				t.Error("the blocked write kept the time that every write has")
			}
		})
	}
}

// A query stops when its client disconnects, while it runs and while it waits for another query.
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
		enable(t, p, newUDP(t), i, socknotify.EventIn)
	}
	query := func(ctx context.Context) *httptest.ResponseRecorder {
		return answer(page, request("GET", "/registrations?sort=key").WithContext(ctx))
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop <- cancel
	if w := query(ctx); w.Body.Len() != 0 {
		t.Errorf("a disconnected client was sent %d bytes", w.Body.Len())
	}
	if n := asked.Load(); n >= sockets {
		t.Errorf("%d keys were read, of %d", n, sockets)
	}
	// One query runs, and another waits for it.
	at, release := make(chan struct{}), make(chan struct{})
	stop <- func() { close(at); <-release }
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- query(t.Context()) }()
	<-at
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		await.Pause(10 * time.Millisecond) // so that it mostly waits; the result must be the same if it does not
		cancel()
	}()
	if w := query(ctx); w.Body.Len() != 0 {
		t.Errorf("a disconnected client was sent %d bytes", w.Body.Len())
	}
	close(release)
	var all debugdata.Registrations
	if err := json.Unmarshal((<-first).Body.Bytes(), &all); err != nil || all.Matched != sockets {
		t.Errorf("%d, %v", all.Matched, err)
	}
}

// There are no samples after the largest number.
func TestHistoryAfterMax(t *testing.T) {
	_, url := serve(t, debug.Port("p", newPort[int](t)))
	const last = "after=18446744073709551615"
	if h := get[debugdata.History](t, url+"history?"+last, 200); len(h.Samples) != 0 {
		t.Errorf("%+v", h)
	}
	if l := get[debugdata.View](t, url+"view?"+last, 200); len(l.History.Samples) != 0 {
		t.Errorf("%+v", l.History)
	}
}

// A trace of socket 0 has the events of that socket only.
func TestTraceOfSocketZero(t *testing.T) {
	p := newPort[int](t)
	_, url := serve(t, debug.Port("p", p))
	resp := open(t, url+"trace?socket=0")
	var s *sock.Socket
	for s = newUDP(t); s.Handle() == 0; s = newUDP(t) {
	}
	enable(t, p, s, 1, socknotify.EventOut)
	if err := p.Post(2, 3); err != nil { // a post has no socket
		t.Fatal(err)
	}
	out := make([]socknotify.Notification[int], 2)
	for n := 0; n < 2; { // the notification and the post
		k, err := p.Process(nil, out, timeout)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	var e debugdata.Event
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Kind != "posted" || e.Data != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}
