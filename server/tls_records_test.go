package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// equalLengths is a configuration whose signatures are all of one length, and so are all flights of a server.
func equalLengths(t testing.TB, version uint16) *tls.Config {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "equal"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, MinVersion: version, MaxVersion: version}
}

// An ending describes how a server ended a connection that sent malformed bytes.
type ending struct {
	sent  string // an alert; other records, which are not the same twice, by their heads
	cause string
}

// records describes what a server has sent.
func records(b []byte, secret bool) string {
	var s strings.Builder
	for len(b) >= 5 {
		n := min(5+int(b[3])<<8+int(b[4]), len(b))
		if b[0] == typeAlert && !secret {
			fmt.Fprintf(&s, "%x ", b[:n])
		} else {
			fmt.Fprintf(&s, "%x… ", b[:5])
		}
		b = b[n:]
	}
	fmt.Fprintf(&s, "%x", b)
	return s.String()
}

// A causes collects the causes of failed handshakes from the log.
type causes chan string

func (c causes) Enabled(context.Context, slog.Level) bool { return true }
func (c causes) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c causes) WithGroup(string) slog.Handler            { return c }
func (c causes) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			c <- a.Value.String()
		}
		return true
	})
	return nil
}

// A rival is a server to compare with: it returns its address, and a function that returns the cause of its connection.
type rival func(t *testing.T, config *tls.Config) (addr string, cause func() string)

// stockRival serves one connection with crypto/tls alone.
func stockRival(t *testing.T, config *tls.Config) (addr string, cause func() string) {
	l := listen(t)
	t.Cleanup(func() { l.Close() })
	ended := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err.Error()
			return
		}
		tc := tls.Server(c, config)
		defer tc.Close() // with a close_notify after a handshake
		if err = tc.Handshake(); err == nil {
			_, err = io.Copy(io.Discard, tc)
		}
		ended <- fmt.Sprint(err)
	}()
	return l.Addr().String(), func() string { return <-ended }
}

// rivalOn serves with the server.
func rivalOn(backend string) rival {
	return func(t *testing.T, config *tls.Config) (addr string, cause func() string) {
		ended := make(causes, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error { _, err := c.Read(buf); return err }}
		h.closed = func(c conn, cause error) { ended <- fmt.Sprint(cause) }
		s := &srv{Handler: h, Backend: backend, TLSConfig: config, HandshakeTimeout: time.Hour, Logger: slog.New(ended)}
		return serveTLS(t, s), func() string { return <-ended }
	}
}

// record returns a record that is not encrypted.
func record(typ byte, version uint16, body string) string {
	return oversized(typ, version, len(body)) + body
}

// oversized returns the header of a record that is too long.
func oversized(typ byte, version uint16, n int) string {
	return string([]byte{typ, byte(version >> 8), byte(version), byte(n >> 8), byte(n)})
}

// Bytes that violate TLS are answered as crypto/tls answers them: with the same bytes and cause, and without waiting for
// more.
func TestTLSMalformed(t *testing.T) {
	const (
		ccs   = 20
		v10   = tls.VersionTLS10
		v12   = tls.VersionTLS12
		v13   = tls.VersionTLS13
		most  = 16384 + 2048
		most3 = 16384 + 256
	)
	warning := record(typeAlert, v12, "\x01\x5a")
	before := map[string]string{ // in the place of a ClientHello
		"HTTP":                         "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"HTTP, five bytes":             "GET /",
		"SSLv2":                        "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
		"SSLv2, five bytes":            "\x80\x2e\x01\x00\x02",
		"type 0":                       oversized(0, v10, 100),
		"type 255":                     oversized(255, v10, 100),
		"change_cipher_spec":           record(ccs, v10, "\x01"),
		"data":                         record(typeData, v10, "hello"),
		"version 16":                   oversized(typeHandshake, 0x1000, 100),
		"version 255":                  oversized(typeHandshake, 0xffff, 100),
		"version 16, alert":            oversized(typeAlert, 0x1000, 2),
		"oversized":                    oversized(typeHandshake, v10, most+1),
		"oversized, most":              oversized(typeHandshake, v10, 0xffff),
		"oversized, alert":             oversized(typeAlert, v10, most+1),
		"oversized plaintext":          record(typeHandshake, v10, strings.Repeat("x", 16385)),
		"empty":                        record(typeHandshake, v10, ""),
		"alert, empty":                 record(typeAlert, v10, ""),
		"alert, one byte":              record(typeAlert, v10, "\x01"),
		"alert, three bytes":           record(typeAlert, v10, "\x01\x00\x00"),
		"alert, no level":              record(typeAlert, v10, "\x07\x0a"),
		"alert, fatal":                 record(typeAlert, v10, "\x02\x28"),
		"alert, close_notify":          record(typeAlert, v10, "\x01\x00"),
		"alert, warnings":              strings.Repeat(warning, 17),
		"message, Finished":            record(typeHandshake, v10, "\x14\x00\x00\x01x"),
		"message, none":                record(typeHandshake, v10, "\x63\x00\x00\x01x"),
		"message, nonsense":            record(typeHandshake, v10, "\x01\x00\x00\x04junk"),
		"message, empty":               record(typeHandshake, v10, "\x01\x00\x00\x00"),
		"message, too long":            record(typeHandshake, v10, "\x01\xff\xff\xff"),
		"message, in part, and data":   record(typeHandshake, v10, "\x01\x00\x01\x00") + record(typeData, v10, "x"),
		"message, in part, and empty":  record(typeHandshake, v10, "\x01\x00\x01\x00") + record(typeHandshake, v10, ""),
		"message, in part, and alert":  record(typeHandshake, v10, "\x01\x00\x01\x00") + record(typeAlert, v10, "\x02\x00"),
		"message, in part, oversized":  record(typeHandshake, v10, "\x01\x00\x01\x00") + oversized(typeHandshake, v10, most+1),
		"message, in part, version 16": record(typeHandshake, v10, "\x01\x00\x01\x00") + oversized(typeHandshake, 0x1000, 1),
	}
	after := map[string]string{ // after a ClientHello, or after the handshake
		"oversized":            oversized(typeHandshake, v12, most+1),
		"oversized, 1.3":       oversized(typeData, v12, most3+1), // and allowed before
		"oversized, most":      oversized(typeData, v12, 0xffff),
		"version":              oversized(typeHandshake, v10, 100),
		"version 16":           oversized(typeHandshake, 0x1000, 100),
		"type 0":               record(0, v12, "x"),
		"type 128":             record(0x80, v12, strings.Repeat("x", 100)),
		"change_cipher_specs":  strings.Repeat(record(ccs, v12, "\x01"), 17),
		"change_cipher_spec":   record(ccs, v12, "\x02"),
		"data":                 record(typeData, v12, strings.Repeat("x", 50)),
		"data, short":          record(typeData, v12, "x"),
		"data, empty":          record(typeData, v12, ""),
		"empty":                record(typeHandshake, v12, ""),
		"message, nonsense":    record(typeHandshake, v12, "\x63\x00\x00\x01x"),
		"alert, fatal":         record(typeAlert, v12, "\x02\x28"),
		"alert, close_notify":  record(typeAlert, v12, "\x01\x00"),
		"alert, one byte":      record(typeAlert, v12, "\x01"),
		"alert, warnings":      strings.Repeat(warning, 17),
		"HTTP":                 "GET / HTTP/1.1\r\n\r\n",
		"ClientHello, another": "", // below
	}
	try := func(t *testing.T, r rival, config *tls.Config, start func(t *testing.T, c net.Conn), text string, secret bool) (e ending) {
		addr, cause := r(t, config)
		c := dial(t, addr)
		start(t, c)
		send(t, c, text)
		got, err := io.ReadAll(c)
		if err != nil && !isReset(err) {
			t.Fatalf("%s; %v", records(got, secret), err)
		}
		return ending{records(got, secret), cause()}
	}
	compare := func(t *testing.T, config *tls.Config, start func(t *testing.T, c net.Conn), text string, secret bool) {
		want := try(t, stockRival, config, start, text, secret)
		backendtest.Each(t, func(t *testing.T, backend string) {
			if got := try(t, rivalOn(backend), config, start, text, secret); got != want {
				t.Errorf("%+v\ncrypto/tls: %+v", got, want)
			}
		})
	}
	for _, version := range []uint16{v12, v13} {
		config := equalLengths(t, version)
		client := &tls.Config{InsecureSkipVerify: true}
		hello := string(clientHello(t, client))
		t.Run(tls.VersionName(version), func(t *testing.T) {
			for name, text := range before {
				t.Run("before/"+name, func(t *testing.T) {
					compare(t, config, func(*testing.T, net.Conn) {}, text, false)
				})
			}
			for name, text := range after {
				switch name {
				case "ClientHello, another":
					text = hello
				case "oversized, 1.3":
					if version == v12 {
						continue
					}
				}
				t.Run("after/"+name, func(t *testing.T) {
					compare(t, config, func(t *testing.T, c net.Conn) { send(t, c, hello) }, text, version == v13)
				})
				t.Run("handshaken/"+name, func(t *testing.T) {
					compare(t, config, func(t *testing.T, c net.Conn) {
						must(t, tls.Client(&recordwise{Conn: c}, client).Handshake())
					}, text, true)
				})
			}
		})
	}
}

// Malformed encrypted records are answered as crypto/tls answers them.
func TestTLSMalformedEncrypted(t *testing.T) {
	config, client := certified(t)
	for name, text := range map[string]func(r *rawTLS) string{
		"oversized":              func(r *rawTLS) string { return r.record(typeData, strings.Repeat("x", 16385)) },
		"type":                   func(r *rawTLS) string { return r.record(99, "x") },
		"no type":                func(r *rawTLS) string { return r.record(0, "\x00\x00") },
		"data, empty":            func(r *rawTLS) string { return manifold(17, func() string { return r.record(typeData, "") }) },
		"message, empty":         func(r *rawTLS) string { return r.record(typeHandshake, "") },
		"message, in part, data": func(r *rawTLS) string { return r.record(typeHandshake, "\x18\x00") + r.record(typeData, "x") },
		"message, too long":      func(r *rawTLS) string { return r.record(typeHandshake, "\x18\xff\xff\xff") },
		"message, ClientHello":   func(r *rawTLS) string { return r.record(typeHandshake, "\x01\x00\x00\x04junk") },
		"message, no answer":     func(r *rawTLS) string { return r.keyUpdate(7) }, // neither asked for nor not
		"message, none":          func(r *rawTLS) string { return r.record(typeHandshake, "\x63\x00\x00\x01\x00") },
		"changes of keys":        func(r *rawTLS) string { return manifold(17, func() string { return r.keyUpdate(0) }) },
		"change_cipher_spec":     func(r *rawTLS) string { return manifold(17, func() string { return r.record(20, "\x01") }) },
		"alert, user_canceled":   func(r *rawTLS) string { return manifold(17, func() string { return r.record(typeAlert, "\x01\x5a") }) },
		"alert, fatal":           func(r *rawTLS) string { return r.record(typeAlert, "\x02\x28") },
		"alert, three bytes":     func(r *rawTLS) string { return r.record(typeAlert, "\x02\x28\x00") },
		"old keys": func(r *rawTLS) string {
			stays := *r.write
			first := r.keyUpdate(0)
			r.write = &stays
			return first + r.record(typeData, "x")
		},
		"bytes changed": func(r *rawTLS) string {
			b := []byte(r.record(typeData, "hello"))
			b[len(b)-1] ^= 1
			return string(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			try := func(t *testing.T, s rival) string {
				addr, cause := s(t, config)
				r := dialRawTLS(t, addr, client)
				r.Conn.Write([]byte(text(r)))
				for !r.alerted {
					if _, err := r.receive(); err != nil {
						break // crypto/tls has an alert for most of these, not for all
					}
				}
				return fmt.Sprint(r.alerted, r.alert, " ", cause())
			}
			want := try(t, stockRival)
			if name == "message, ClientHello" { // crypto/tls reads it before it refuses it
				want = "true 10 tls: received unexpected handshake message of type *tls.clientHelloMsg"
			}
			backendtest.Each(t, func(t *testing.T, backend string) {
				if got := try(t, rivalOn(backend)); got != want {
					t.Errorf("%s\ncrypto/tls: %s", got, want)
				}
			})
		})
	}
}

func manifold(n int, f func() string) (all string) {
	for range n {
		all += f()
	}
	return all
}
