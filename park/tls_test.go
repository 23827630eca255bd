package park

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	return makeCertificate()
}

// makeCertificate returns a certificate for loopback.
func makeCertificate() tls.Certificate {
	cert, _, err := selfcert.New(24*time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		panic(err)
	}
	return cert
}

// A heldWriter is a connection that collects the bytes that are written while on is true. The test sends them itself.
type heldWriter struct {
	net.Conn
	on   bool
	held []byte
}

func (h *heldWriter) Write(p []byte) (int, error) {
	if !h.on {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

// A tlsKind is a version of TLS, and who serves it.
type tlsKind struct {
	version   uint16
	cryptoTLS bool
}

func (k tlsKind) server(t testing.TB, conn net.Conn) TLSConn {
	return k.serverWith(conn, certificate(t))
}

func (k tlsKind) serverWith(conn net.Conn, cert tls.Certificate) TLSConn {
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: k.version}
	if k.cryptoTLS {
		return tls.Server(conn, config)
	}
	return TLSServer(conn, config)
}

// pair returns a TLS connection after its handshake, and the heldWriter below the client.
func (k tlsKind) pair(t testing.TB) (server TLSConn, client *tls.Conn, h *heldWriter) {
	t.Helper()
	a, b := pair(t, "tcp")
	h = &heldWriter{Conn: b}
	server = k.server(t, a)
	client = tls.Client(h, &tls.Config{InsecureSkipVerify: true, MaxVersion: k.version})
	failed := make(chan error, 1)
	go func() { failed <- server.HandshakeContext(context.Background()) }()
	must(t, client.Handshake())
	must(t, receive(t, failed))
	return server, client, h
}

func eachTLS(t *testing.T, test func(t *testing.T, k tlsKind)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { test(t, tlsKind{version: v}) })
		t.Run("crypto/tls, "+tls.VersionName(v), func(t *testing.T) { test(t, tlsKind{v, true}) })
	}
}

func TestTLS(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		server, client, _ := k.pair(t)
		f, outcomes := reader()
		var conn net.Conn = server
		for range 100 {
			must(t, l.Park(conn, f))
			send(t, client, "hello")
			o := receive(t, outcomes)
			if o.text != "hello" || o.err != nil {
				t.Fatalf("%+v", o)
			}
			if c := o.conn.(*Conn); c.NetConn() != server || conn != server && c != conn {
				t.Fatal("the function received another connection")
			}
			conn = o.conn
		}
		must(t, l.Park(conn, f))
		client.Close()
		wantErr(t, receive(t, outcomes).err, io.EOF)
	})
}

// Several records arrive in one segment. Package tls reads all of them together with the first.
func TestTLSRecordsAhead(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		server, client, h := k.pair(t)
		f, outcomes := reader()
		h.on = true
		want := []string{"one", "two", "three", "four"}
		for _, text := range want {
			send(t, client, text)
		}
		must(t, l.Park(server, f))
		if _, err := h.Conn.Write(h.held); err != nil {
			t.Fatal(err)
		}
		o := receive(t, outcomes)
		text := o.text
		for text != "onetwothreefour" {
			must(t, l.Park(o.conn, f))
			o = receive(t, outcomes)
			if text += o.text; o.err != nil || o.text == "" || len(text) > 15 {
				t.Fatalf("%q, %v", text, o.err)
			}
		}
		if s := l.Stats(); s.AtOnce == 0 {
			t.Fatalf("nothing was read ahead: %+v", s)
		}
		must(t, l.Park(o.conn, f))
		h.on = false
		send(t, client, "five")
		if o := receive(t, outcomes); o.text != "five" {
			t.Fatalf("%+v", o)
		}
	})
}

// Small Reads leave a part of a record's plaintext in package tls, which is read ahead too.
func TestTLSPlaintextAhead(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		server, client, _ := k.pair(t)
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
		must(t, l.Park(server, f))
		send(t, client, "abcdef")
		for i := range 6 {
			if c := receive(t, chars); c != "abcdef"[i] {
				t.Fatalf("%c at %d", c, i)
			}
		}
		send(t, client, "g")
		if c := receive(t, chars); c != 'g' {
			t.Fatalf("%c", c)
		}
	})
}

// A record arrives in parts, and the first part has been read when the connection is parked.
func TestTLSPartialRecord(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		for _, cut := range []int{1, 4, 5, 6, 20} {
			l := newLot(t, Config{})
			server, client, h := k.pair(t)
			f, outcomes := reader()
			h.on = true
			send(t, client, "first")
			n := len(h.held)
			send(t, client, "second")
			// One segment with the first record and the start of the second.
			if _, err := h.Conn.Write(h.held[:n+cut]); err != nil {
				t.Fatal(err)
			}
			must(t, l.Park(server, f))
			o := receive(t, outcomes)
			if o.text != "first" {
				t.Fatalf("%+v", o)
			}
			must(t, l.Park(o.conn, f))
			if _, err := h.Conn.Write(h.held[n+cut:]); err != nil {
				t.Fatal(err)
			}
			if o := receive(t, outcomes); o.text != "second" || o.err != nil {
				t.Fatalf("cut at %d: %+v", cut, o)
			}
		}
	})
}

// A connection may be parked before its handshake.
func TestTLSParkedBeforeHandshake(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		a, b := pair(t, "tcp")
		server := k.server(t, a)
		client := tls.Client(b, &tls.Config{InsecureSkipVerify: true, MaxVersion: k.version})
		f, outcomes := reader()
		must(t, l.Park(server, f))
		must(t, client.Handshake())
		send(t, client, "hello")
		if o := receive(t, outcomes); o.text != "hello" || o.err != nil {
			t.Fatalf("%+v", o)
		}
	})
}

// Park in a closed lot reads no bytes from the connection.
func TestTLSRefusedWithRecordsAhead(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		server, client, h := k.pair(t)
		h.on = true
		send(t, client, "one")
		send(t, client, "two")
		if _, err := h.Conn.Write(h.held); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 3)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "one" {
			t.Fatal(err, string(buf))
		}
		must(t, l.Shutdown(t.Context()))
		wantErr(t, l.Park(server, func(net.Conn) { t.Error("run") }), ErrClosed)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "two" {
			t.Fatal(err, string(buf))
		}
	})
}

func TestTLSShutdownSendsCloseNotify(t *testing.T) {
	eachTLS(t, func(t *testing.T, k tlsKind) {
		l := newLot(t, Config{})
		server, client, _ := k.pair(t)
		f, outcomes := reader()
		must(t, l.Park(server, f))
		must(t, l.Shutdown(t.Context()))
		wantErr(t, receive(t, outcomes).err, net.ErrClosed)
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err) // io.EOF requires a close_notify
		}
	})
}
