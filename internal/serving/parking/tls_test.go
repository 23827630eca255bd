package parking

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

func TestTLS(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		server, client, _ := k.Pair(t)
		f, outcomes := conntest.Reader()
		var conn net.Conn = server
		for range 100 {
			check.OK(t, l.Park(conn, f))
			conntest.Send(t, client, "hello")
			o := await.Value(t, outcomes)
			if o.Text != "hello" || o.Err != nil {
				t.Fatalf("%+v", o)
			}
			if c := o.Conn.(*Conn); c.NetConn() != server || conn != server && c != conn {
				t.Fatal("the function received another connection")
			}
			conn = o.Conn
		}
		check.OK(t, l.Park(conn, f))
		client.Close()
		check.Is(t, await.Value(t, outcomes).Err, io.EOF)
	})
}

// Several records arrive in one segment. Package tls reads all of them together with the first.
func TestTLSRecordsAhead(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		server, client, h := k.Pair(t)
		f, outcomes := conntest.Reader()
		h.On = true
		want := []string{"one", "two", "three", "four"}
		for _, text := range want {
			conntest.Send(t, client, text)
		}
		check.OK(t, l.Park(server, f))
		if _, err := h.Conn.Write(h.Held); err != nil {
			t.Fatal(err)
		}
		o := await.Value(t, outcomes)
		text := o.Text
		for text != "onetwothreefour" {
			check.OK(t, l.Park(o.Conn, f))
			o = await.Value(t, outcomes)
			if text += o.Text; o.Err != nil || o.Text == "" || len(text) > 15 {
				t.Fatalf("%q, %v", text, o.Err)
			}
		}
		if s := l.Counts(); s.AtOnce == 0 {
			t.Fatalf("nothing was read ahead: %+v", s)
		}
		check.OK(t, l.Park(o.Conn, f))
		h.On = false
		conntest.Send(t, client, "five")
		if o := await.Value(t, outcomes); o.Text != "five" {
			t.Fatalf("%+v", o)
		}
	})
}

// Small Reads leave a part of a record's plaintext in package tls, which is read ahead too.
func TestTLSPlaintextAhead(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		server, client, _ := k.Pair(t)
		chars := make(chan byte, 1)
		var f func(net.Conn)
		f = func(conn net.Conn) {
			var b [1]byte
			if _, err := conn.Read(b[:]); err != nil {
				return
			}
			chars <- b[0]
			l.Park(conn, f)
		}
		check.OK(t, l.Park(server, f))
		conntest.Send(t, client, "abcdef")
		for i := range 6 {
			if c := await.Value(t, chars); c != "abcdef"[i] {
				t.Fatalf("%c at %d", c, i)
			}
		}
		conntest.Send(t, client, "g")
		if c := await.Value(t, chars); c != 'g' {
			t.Fatalf("%c", c)
		}
	})
}

// A record arrives in parts, and the first part has been read when the connection is parked.
func TestTLSPartialRecord(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		for _, cut := range []int{1, 4, 5, 6, 20} {
			l := newLot(t, Config{})
			server, client, h := k.Pair(t)
			f, outcomes := conntest.Reader()
			h.On = true
			conntest.Send(t, client, "first")
			n := len(h.Held)
			conntest.Send(t, client, "second")
			// One segment with the first record and the start of the second.
			if _, err := h.Conn.Write(h.Held[:n+cut]); err != nil {
				t.Fatal(err)
			}
			check.OK(t, l.Park(server, f))
			o := await.Value(t, outcomes)
			if o.Text != "first" {
				t.Fatalf("%+v", o)
			}
			check.OK(t, l.Park(o.Conn, f))
			if _, err := h.Conn.Write(h.Held[n+cut:]); err != nil {
				t.Fatal(err)
			}
			if o := await.Value(t, outcomes); o.Text != "second" || o.Err != nil {
				t.Fatalf("cut at %d: %+v", cut, o)
			}
		}
	})
}

// A connection may be parked before its handshake.
func TestTLSParkedBeforeHandshake(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		a, b := conntest.Pair(t, "tcp")
		server := k.Server(t, a)
		client := tls.Client(b, &tls.Config{InsecureSkipVerify: true, MaxVersion: k.Version})
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		check.OK(t, client.Handshake())
		conntest.Send(t, client, "hello")
		if o := await.Value(t, outcomes); o.Text != "hello" || o.Err != nil {
			t.Fatalf("%+v", o)
		}
	})
}

// Park in a closed lot reads no bytes from the connection.
func TestTLSRefusedWithRecordsAhead(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		server, client, h := k.Pair(t)
		h.On = true
		conntest.Send(t, client, "one")
		conntest.Send(t, client, "two")
		if _, err := h.Conn.Write(h.Held); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 3)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "one" {
			t.Fatal(err, string(buf))
		}
		check.OK(t, l.Shutdown(t.Context()))
		check.Is(t, l.Park(server, func(net.Conn) { t.Error("run") }), ErrClosed)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "two" {
			t.Fatal(err, string(buf))
		}
	})
}

func TestTLSShutdownSendsCloseNotify(t *testing.T) {
	conntest.EachTLS(t, func(t *testing.T, k conntest.TLSKind) {
		l := newLot(t, Config{})
		server, client, _ := k.Pair(t)
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		check.OK(t, l.Shutdown(t.Context()))
		check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err) // io.EOF requires a close_notify
		}
	})
}
