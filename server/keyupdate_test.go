package server_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/server"
)

// updating starts a server and dials it.
func updating(t *testing.T, backend string, h *handler, queue int) *rawTLS {
	t.Helper()
	addr, config := startTLS(t, &srv{Handler: h, Backend: backend, MaxQueued: queue})
	return dialRawTLS(t, addr, config)
}

// text receives as much data as want has, and compares.
func (r *rawTLS) text(want string) {
	r.t.Helper()
	var got []byte
	for len(got) < len(want) {
		data, err := r.receive()
		if err != nil {
			r.t.Fatalf("%q, %v; want %q", got, err, want)
		}
		got = append(got, data...)
	}
	if string(got) != want {
		r.t.Fatalf("%q; want %q", got, want)
	}
}

// answer receives a key update of the server, without data before it.
func (r *rawTLS) answer() {
	r.t.Helper()
	before := r.updates
	if data, err := r.receive(); err != nil || len(data) > 0 || r.updates != before+1 {
		r.t.Fatalf("%q, %v; want a change of keys", data, err)
	}
}

// A peer may update its keys and request an update of the server's, which is sent even if nothing else is written.
func TestTLSKeyUpdate(t *testing.T) {
	owners(t, func(t *testing.T, backend string) {
		r := updating(t, backend, &handler{t: t}, 0)
		for range 20 {
			send(t, r, r.record(typeData, "before"))
			r.text("before")
			send(t, r, r.keyUpdate(0))
			send(t, r, r.record(typeData, "after"))
			r.text("after")
		}
		if r.updates != 0 || r.tickets == 0 {
			t.Errorf("%d updates without a request, %d tickets", r.updates, r.tickets)
		}
		for range 5 {
			for range 10 { // crypto/tls allows 16 without data
				send(t, r, r.keyUpdate(1))
				r.answer()
			}
			send(t, r, r.record(typeData, "hello"))
			r.text("hello")
		}
	})
}

// Key updates may arrive in any pieces, alone or between data, and in one record or several.
func TestTLSKeyUpdateInPieces(t *testing.T) {
	owners(t, func(t *testing.T, backend string) {
		r := updating(t, backend, &handler{t: t}, 0)
		for i, c := range []byte(r.record(typeData, "0") + r.keyUpdate(1) + r.record(typeData, "1") + r.keyUpdate(0) + r.record(typeData, "2")) {
			if i%7 == 0 {
				await.Pause(time.Millisecond) // so that some are received by themselves; it holds if they are not
			}
			send(t, r, string([]byte{c}))
		}
		r.text("012")
		var all, want strings.Builder
		for range 30 {
			all.WriteString(r.record(typeData, "some") + r.keyUpdate(1) + r.record(typeData, "thing"))
			want.WriteString("something")
		}
		send(t, r, all.String()) // at once
		r.text(want.String())
		if r.updates != 31 {
			t.Errorf("%d changes of keys", r.updates)
		}
		send(t, r, r.record(typeHandshake, "\x18\x00"))
		await.Pause(5 * time.Millisecond) // likewise
		send(t, r, r.record(typeHandshake, "\x00\x01\x01"))
		r.write.update()
		r.answer()
		send(t, r, r.record(typeData, "hello"))
		r.text("hello")
	})
}

// Key updates are sent in order with the bytes of other goroutines and with queued bytes.
func TestTLSKeyUpdateAmongWrites(t *testing.T) {
	owners(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			_, err := c.Read(buf)
			return err
		}}
		r := updating(t, backend, h, 1<<20)
		const total = 4 << 20
		sc := h.conn(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			for at := 0; at < total; {
				n, err := sc.Write(stream(1, at, min(5000, total-at)))
				if at += n; err == server.ErrQueueFull {
					await.Pause(time.Millisecond)
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
		const asked = 200
		wg.Go(func() {
			for range asked {
				if _, err := r.Conn.Write([]byte(r.keyUpdate(1) + r.record(typeData, "x"))); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for at := 0; at < total; {
			data, err := r.receive()
			if err != nil || !bytes.Equal(data, stream(1, at, len(data))) {
				t.Fatalf("%d bytes at %d, or others: %v", len(data), at, err)
			}
			at += len(data)
		}
		wg.Wait()
		for r.updates < asked {
			r.answer()
		}
	})
}

// While the write queue is full, the peer's request for a key update waits with everything else that it sends.
func TestTLSKeyUpdateQueueFull(t *testing.T) {
	owners(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		r := updating(t, backend, h, 100_000)
		total, err := fillStream(h.conn(1), 70_000)
		if err != nil {
			t.Fatal(err)
		}
		send(t, r, r.keyUpdate(1))
		send(t, r, r.record(typeData, "hello"))
		r.text(string(stream(1, 0, total)))
		r.text("hello")
		if r.updates != 1 {
			t.Errorf("%d changes of keys", r.updates)
		}
	})
}

// Key updates work on hijacked and on paused connections.
func TestTLSKeyUpdateHijackedAndPaused(t *testing.T) {
	noHijack(t)
	owners(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: reading(func(c conn, text string) error {
			switch text {
			case "hijack":
				return hijack(c, func(nc net.Conn) {
					nc.Write([]byte("hijacked"))
					b := make([]byte, 100)
					n, err := nc.Read(b)
					if err != nil {
						t.Error(err)
					}
					nc.Write(b[:n])
					c.Resume()
				})
			case "pause":
				c.Pause()
				go func() {
					c.Write([]byte("paused"))
					c.Resume()
				}()
				return nil
			default:
				return write(c, text)
			}
		})}
		r := updating(t, backend, h, 0)
		for range 20 {
			send(t, r, r.record(typeData, "hijack"))
			r.text("hijacked")
			send(t, r, r.keyUpdate(1))
			r.answer()
			send(t, r, r.record(typeData, "in between"))
			r.text("in between")
			send(t, r, r.record(typeData, "pause")+r.keyUpdate(1))
			r.text("paused")
			send(t, r, r.record(typeData, "after"))
			r.text("after")
		}
		if r.updates != 40 {
			t.Errorf("%d changes of keys", r.updates)
		}
	})
}

// A hijacker gets what had been received: the rest of a record, a record, and a part of one. After
// Resume nothing is missing either.
func TestTLSHijackReceived(t *testing.T) {
	noHijack(t)
	owners(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf[:3])
			if err != nil {
				return err
			}
			if string(buf[:n]) != "hij" {
				_, err = c.Write(buf[:n])
				return err
			}
			nc, err := c.Hijack()
			if err != nil {
				return err
			}
			nc.Write([]byte("hijacked"))
			go func() {
				b := make([]byte, len("ack, second, third"))
				if _, err := io.ReadFull(nc, b); err != nil {
					t.Error(err)
				}
				nc.Write(b)
				if err := c.Resume(); err != nil {
					t.Error(err)
				}
			}()
			return nil
		}}
		r := updating(t, backend, h, 0)
		for range 20 {
			third := r.record(typeData, "hijack") + r.record(typeData, ", second") + r.record(typeData, ", third, fourth")
			fifth := r.record(typeData, " and fifth")
			send(t, r, third[:len(third)-9])
			r.text("hijacked")
			send(t, r, third[len(third)-9:]+fifth[:7])
			r.text("ack, second, third, fourth")
			send(t, r, fifth[7:])
			r.text(" and fifth")
		}
	})
}

// After CloseWrite a request for a key update has no answer, but the peer's bytes are still received.
func TestTLSKeyUpdateAfterCloseWrite(t *testing.T) {
	owners(t, func(t *testing.T, backend string) {
		got := make(chan string, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf)
			switch c.Value.got = append(c.Value.got, buf[:n]...); {
			case string(buf[:n]) == "end":
				return c.CloseWrite()
			case err == io.EOF:
				got <- string(c.Value.got)
			}
			return err
		}}
		r := updating(t, backend, h, 0)
		send(t, r, r.record(typeData, "end"))
		if data, err := r.receive(); err != nil || len(data) > 0 || !r.alerted || r.alert != 0 {
			t.Fatalf("%q, %v, alert %d; want close_notify", data, err, r.alert)
		}
		if _, err := r.receive(); err != io.EOF {
			t.Errorf("%v; want the end", err)
		}
		for range 3 {
			send(t, r, r.keyUpdate(1))
			send(t, r, r.record(typeData, " more"))
		}
		send(t, r, r.record(typeAlert, "\x01\x00"))
		if text := <-got; text != "end more more more" {
			t.Errorf("received %q", text)
		}
		h.wantCause(1, nil)
	})
}
