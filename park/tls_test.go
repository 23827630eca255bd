package park

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	return makeCertificate()
}

// makeCertificate makes a certificate for loopback. It panics without randomness.
func makeCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{{127, 0, 0, 1}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// hoard is a connection that holds back what is written, for a test to send as it likes.
type hoard struct {
	net.Conn
	on   bool
	held []byte
}

func (h *hoard) Write(p []byte) (int, error) {
	if !h.on {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

// tlsPair makes a TLS connection, past its handshake, and the client's hoard.
func tlsPair(t testing.TB, version uint16) (server, client *tls.Conn, h *hoard) {
	t.Helper()
	a, b := pair(t, "tcp")
	h = &hoard{Conn: b}
	server = tls.Server(a, &tls.Config{Certificates: []tls.Certificate{certificate(t)}, MaxVersion: version})
	client = tls.Client(h, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	must(t, client.Handshake())
	must(t, get(t, failed))
	return server, client, h
}

func eachTLS(t *testing.T, test func(t *testing.T, version uint16)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { test(t, v) })
	}
}

func TestTLS(t *testing.T) {
	eachTLS(t, func(t *testing.T, version uint16) {
		l := newLot(t, Config{})
		server, client, _ := tlsPair(t, version)
		f, outcomes := reader()
		var conn net.Conn = server
		for range 100 {
			must(t, l.Park(conn, f))
			send(t, client, "hello")
			o := get(t, outcomes)
			if o.text != "hello" || o.err != nil {
				t.Fatalf("%+v", o)
			}
			if c := o.conn.(*Conn); c.NetConn() != server || conn != server && c != conn {
				t.Fatal("not the connection that was parked")
			}
			conn = o.conn
		}
		must(t, l.Park(conn, f))
		client.Close()
		wantErr(t, get(t, outcomes).err, io.EOF)
	})
}

// Several records in one segment: package tls has read them all with the first.
func TestTLSRecordsAhead(t *testing.T) {
	eachTLS(t, func(t *testing.T, version uint16) {
		l := newLot(t, Config{})
		server, client, h := tlsPair(t, version)
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
		o := get(t, outcomes)
		text := o.text
		for text != "onetwothreefour" {
			must(t, l.Park(o.conn, f))
			o = get(t, outcomes)
			if text += o.text; o.err != nil || o.text == "" || len(text) > 15 {
				t.Fatalf("%q, %v", text, o.err)
			}
		}
		if s := l.Stats(); s.AtOnce == 0 {
			t.Fatalf("nothing was held: %+v", s)
		}
		must(t, l.Park(o.conn, f))
		h.on = false
		send(t, client, "five")
		if o := get(t, outcomes); o.text != "five" {
			t.Fatalf("%+v", o)
		}
	})
}

// A record that was read in part, by small reads: the rest of its plain text is held too.
func TestTLSPlaintextAhead(t *testing.T) {
	l := newLot(t, Config{})
	server, client, _ := tlsPair(t, tls.VersionTLS13)
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
		if c := get(t, chars); c != "abcdef"[i] {
			t.Fatalf("%c at %d", c, i)
		}
	}
	send(t, client, "g")
	if c := get(t, chars); c != 'g' {
		t.Fatalf("%c", c)
	}
}

// A record in parts, of which the first has been read when the connection is parked.
func TestTLSPartialRecord(t *testing.T) {
	eachTLS(t, func(t *testing.T, version uint16) {
		for _, cut := range []int{1, 4, 5, 6, 20} {
			l := newLot(t, Config{})
			server, client, h := tlsPair(t, version)
			f, outcomes := reader()
			h.on = true
			send(t, client, "first")
			n := len(h.held)
			send(t, client, "second")
			// The first record and the head of the second, in one segment.
			if _, err := h.Conn.Write(h.held[:n+cut]); err != nil {
				t.Fatal(err)
			}
			must(t, l.Park(server, f))
			o := get(t, outcomes)
			if o.text != "first" {
				t.Fatalf("%+v", o)
			}
			must(t, l.Park(o.conn, f))
			if _, err := h.Conn.Write(h.held[n+cut:]); err != nil {
				t.Fatal(err)
			}
			if o := get(t, outcomes); o.text != "second" || o.err != nil {
				t.Fatalf("cut at %d: %+v", cut, o)
			}
		}
	})
}

// Parking must not spoil a handshake that is yet to come.
func TestTLSParkedBeforeHandshake(t *testing.T) {
	l := newLot(t, Config{})
	a, b := pair(t, "tcp")
	server := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	client := tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	f, outcomes := reader()
	must(t, l.Park(server, f))
	must(t, client.Handshake())
	send(t, client, "hello")
	if o := get(t, outcomes); o.text != "hello" || o.err != nil {
		t.Fatalf("%+v", o)
	}
}

// A closed lot takes nothing from a connection that it refuses.
func TestTLSRefusedWithRecordsAhead(t *testing.T) {
	l := newLot(t, Config{})
	server, client, h := tlsPair(t, tls.VersionTLS13)
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
}

func TestTLSShutdownSaysGoodbye(t *testing.T) {
	l := newLot(t, Config{})
	server, client, _ := tlsPair(t, tls.VersionTLS13)
	f, outcomes := reader()
	must(t, l.Park(server, f))
	must(t, l.Shutdown(t.Context()))
	wantErr(t, get(t, outcomes).err, net.ErrClosed)
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err) // which only a close_notify makes of it
	}
}
