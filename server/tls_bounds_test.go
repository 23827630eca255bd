package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// A tally counts the lines of a log and what they say was left out.
type tally struct {
	lines, suppressed atomic.Int64
	last              atomic.Value // the address in the latest line that has one
}

func (c *tally) Enabled(context.Context, slog.Level) bool { return true }
func (c *tally) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *tally) WithGroup(string) slog.Handler            { return c }
func (c *tally) Handle(_ context.Context, r slog.Record) error {
	line := int64(1)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "suppressed":
			line = 0
			c.suppressed.Add(a.Value.Int64())
		case "remote":
			c.last.Store(a.Value.String())
		}
		return true
	})
	c.lines.Add(line) // last: a test that waits for the line then reads the address
	return nil
}

// Peers cannot fill the log: of each kind of line that they can cause, ten are logged in a second, and the number of the
// others.
func TestLogLimited(t *testing.T) {
	config, _ := certified(t)
	for name, c := range map[string]struct {
		tls  bool
		text string
	}{"handshakes": {true, "GET / HTTP/1.0\r\n\r\n"}, "refused": {}} {
		t.Run(name, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				const n = 300
				log := new(tally)
				s := &srv{Handler: &handler{t: t}, Backend: backend, Logger: slog.New(log), TLSConfig: config}
				l := listen(t)
				serve := func() error { return s.ServeTLS(l, "", "") }
				if !c.tls {
					s.MaxConns = 1
					serve = func() error { return s.Serve(l) }
				}
				served(t, s, serve)
				if !c.tls {
					dial(t, l.Addr().String())
					wait(t, func() bool { return s.Stats().Conns == 1 })
				}
				from := time.Now()
				for range n {
					nc := dial(t, l.Addr().String())
					send(t, nc, c.text)
					io.Copy(io.Discard, nc)
					nc.Close()
				}
				s.Close()
				shutdown(t, s)
				most := 10 * int64(time.Since(from)/time.Second+2)
				if lines := log.lines.Load(); lines+log.suppressed.Load() != n || lines > most {
					t.Errorf("%d lines, where %d may be, and %d suppressed, of %d", lines, most, log.suppressed.Load(), n)
				}
			})
		})
	}
}

// The log has the address of a peer that has reset its connection.
func TestTLSResetLogged(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		log := new(tally)
		s := &srv{Handler: &handler{t: t}, Backend: backend, Logger: slog.New(log)}
		addr, client := startTLS(t, s)
		for i, text := range []string{"", "\x16\x03", string(clientHello(t, client))} {
			c := dial(t, addr)
			wait(t, func() bool { return s.Stats().Conns == 1 })
			if send(t, c, text); i == 2 {
				expectFlight(t, c)
			}
			c.SetLinger(0)
			c.Close()
			wait(t, func() bool { return failed(s.Stats()) == uint64(i+1) && log.lines.Load() == int64(i+1) })
			if got := log.last.Load(); got != c.LocalAddr().String() {
				t.Errorf("from %v, want %v", got, c.LocalAddr())
			}
			wait(t, func() bool { return s.Stats().Conns == 0 })
		}
	})
}

// A Read ends after a number of records, even if a peer sends many key updates between its bytes. The rest is read without
// another byte from the peer.
func TestTLSReadRecordLimit(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const groups = 100
		var most atomic.Int64
		h := &handler{t: t, data: reading(func(c conn, text string) error {
			if text == "pause" {
				c.Pause()
			} else {
				most.Store(max(most.Load(), int64(len(text))))
			}
			return write(c, text)
		})}
		r := updating(t, backend, h, 0)
		send(t, r, r.record(typeData, "pause"))
		r.text("pause")
		var all strings.Builder
		for range groups {
			for range 15 {
				all.WriteString(r.keyUpdate(0))
			}
			all.WriteString(r.record(typeData, "x"))
		}
		go r.Conn.Write([]byte(all.String())) // a part of it when that is resumed, where buffers are small
		await.Pause(10 * time.Millisecond)    // so that much has come; it holds if it has not
		h.conn(1).Resume()
		r.text(strings.Repeat("x", groups))
		if n := most.Load(); n > 32 {
			t.Errorf("%d bytes in one Read, with 15 changes of keys before each", n)
		}
	})
}

// The queue stays within MaxQueued if another goroutine reads while Write encrypts, and the reader sends a part of it.
func TestTLSQueueWithConcurrentReader(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const queue = 300_000
		read := make(chan struct{}, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			_, err := c.Read(buf)
			read <- struct{}{}
			return err
		}}
		// The configuration's randomness is asked for at the beginning of each record of these suites.
		between := &hooked{}
		s := &srv{Handler: h, Backend: backend, MaxQueued: queue, TLSConfig: &tls.Config{
			MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, Rand: between}}
		addr, config := startTLS(t, s)
		config.CipherSuites = s.TLSConfig.CipherSuites
		c := dialTLS(t, addr, config)
		sc := h.conn(1)
		records, reads := 0, 0
		between.set(func() {
			if records++; records%2 == 0 && sc.Queued() <= queue/2 { // beyond that nothing is received
				if _, err := c.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				<-read
				reads++
			}
		})
		total, piece := 0, make([]byte, 24<<10) // two records
		for {
			n, err := sc.Write(piece)
			total += n
			if err == server.ErrQueueFull {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		between.set(nil)
		if q := sc.Queued(); q > queue+queue/10 || reads == 0 {
			t.Errorf("%d bytes queued, where %d may be; %d reads in between", q, queue, reads)
		}
		if n, err := io.CopyN(io.Discard, extended{c}, int64(total)); err != nil {
			t.Errorf("%d bytes of %d, %v", n, total, err)
		}
	})
}

// A hooked is randomness that calls a function before.
type hooked struct {
	mu sync.Mutex
	f  func()
}

func (h *hooked) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *hooked) Read(b []byte) (int, error) {
	h.mu.Lock()
	f := h.f
	h.mu.Unlock()
	if f != nil {
		f()
	}
	return rand.Read(b)
}
