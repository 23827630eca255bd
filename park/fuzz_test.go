package park

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
)

// cut calls each for consecutive pieces of data, whose lengths are given by cuts. pause is true for every fourth piece.
func cut(data, cuts []byte, each func(piece []byte, pause bool)) {
	for i := 0; len(data) > 0; i++ {
		n, pause := len(data), false
		if i < len(cuts) {
			n, pause = 1+int(cuts[i]>>2)*int(cuts[i]>>2), cuts[i]&3 == 3
		}
		n = min(n, len(data))
		each(data[:n], pause)
		data = data[n:]
	}
}

// FuzzReadAhead sends arbitrary bytes in arbitrary segments to connections that are parked between any two Reads:
// plain, wrapped, and with TLS. With TLS, records and segments are cut independently, and invalid bytes may follow the
// last record. Every byte is received once and in order, and then the end of the stream.
func FuzzReadAhead(f *testing.F) {
	text := []byte("what a stranger sends, in pieces")
	for kind := range uint8(6) {
		f.Add(kind, text, []byte{0, 0, 4, 7, 3, 8}, []byte{1, 200, 3})
		f.Add(kind, bytes.Repeat(text, 1200), []byte{200, 255, 90, 3, 0, 91}, []byte{255, 0, 64})
		f.Add(kind, []byte{}, []byte{}, []byte{})
		f.Add(kind, text, []byte{3, 3, 3, 3, 3, 3, 3, 3}, []byte{0})
	}
	l := newLot(f, Config{})
	cert := conntest.MakeCertificate()
	f.Fuzz(func(t *testing.T, kind uint8, data, cuts, sizes []byte) {
		data = data[:min(len(data), 100<<10)]
		server, client := conntest.Pair(t, "tcp")
		client.SetDeadline(time.Now().Add(conntest.Timeout))
		wire, garbage := data, []byte(nil)
		switch kind % 6 {
		case 1:
			server = conntest.Buffered(server)
		case 2, 3, 4, 5: // TLS
			secure := conntest.TLSKind{CryptoTLS: kind%6 > 3}.ServerWith(server, cert)
			server = secure
			h := &conntest.HeldWriter{Conn: client}
			c := tls.Client(h, &tls.Config{InsecureSkipVerify: true})
			failed := make(chan error, 1)
			go func() { failed <- secure.HandshakeContext(context.Background()) }()
			check.OK(t, c.Handshake())
			check.OK(t, await.Value(t, failed))
			h.On = true
			cut(data, sizes, func(piece []byte, _ bool) { c.Write(piece) })
			if kind%2 == 0 {
				c.CloseWrite()
				client.SetDeadline(time.Now().Add(conntest.Timeout)) // the client cannot write after that
			} else {
				garbage = cuts
			}
			wire = h.Held
		}

		var got []byte
		var calls int
		ended := make(chan error, 1)
		var serve func(net.Conn)
		serve = func(conn net.Conn) {
			size := 4096
			if len(sizes) > 0 {
				size = 1 + int(sizes[calls%len(sizes)])*16
			}
			calls++
			buf := make([]byte, size)
			n, err := conn.Read(buf)
			got = append(got, buf[:n]...)
			if err == nil {
				err = l.Park(conn, serve)
			}
			if err != nil {
				conn.Close()
				ended <- err
			}
		}
		check.OK(t, l.Park(server, serve))
		cut(wire, cuts, func(piece []byte, pause bool) {
			conntest.Send(t, client, string(piece))
			if pause {
				await.Pause(time.Millisecond) // time to be parked; it holds without
			}
		})
		client.Write(garbage) // fails if the server has closed
		client.(*net.TCPConn).CloseWrite()
		err := await.Value(t, ended)
		if !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, want %d, then %v", len(got), len(data), err)
		}
		if len(garbage) == 0 && err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	})
}

// FuzzHTTP sends arbitrary bytes in arbitrary pieces, with and without TLS, to net/http and to an HTTPServer that parks
// whenever it can. The answers are the same, byte for byte. If a server closes the connection with unread bytes, the
// connection is reset and a part of the answer may be lost. Then one answer must be a prefix of the other.
func FuzzHTTP(f *testing.F) {
	post := request("POST", "/echo", "Content-Length: 4")
	chunked := request("POST", "/echo", "Transfer-Encoding: chunked")
	for _, text := range []string{
		hello, hello + hello, hello[:3], "\r\n" + hello, post + "body" + "\r\n" + hello, post + "bo",
		chunked + "3\r\nabc\r\n0\r\n\r\n" + hello, chunked + "zz\r\n", request("GET", "/hijack") + "one\ntwo\n",
		request("POST", "/echo", "Expect: 100-continue", "Content-Length: 4") + "body" + hello,
		request("GET", "/close") + hello, "nonsense\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00",
		"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + hello, request("GET", "/abort"), request("GET", "/early"),
		"GET /hello\r\n\r\n", request("HEAD", "/stream") + hello, "\r\n\r\n\r\n\r\n",
	} {
		for _, secure := range []bool{false, true} {
			f.Add([]byte(text), []byte{7, 7, 255, 3, 11, 255}, secure)
			f.Add([]byte(hello+text), []byte{4*7 + 3, 3, 3, 3, 3, 3}, secure)
		}
	}
	var addresses [2][2]string // net/http and HTTPServer, each without and with TLS
	for i := range 2 {
		for j := range 2 {
			srv := &http.Server{Handler: httpcorpus.Handler(), ErrorLog: log.New(io.Discard, "", 0),
				TLSConfig: &tls.Config{Certificates: []tls.Certificate{conntest.MakeCertificate()}}}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			check.OK(f, err)
			addresses[i][j] = ln.Addr().String()
			serve, serveTLS, end := srv.Serve, srv.ServeTLS, srv.Shutdown
			if i == 1 {
				s := &HTTPServer{Server: srv, Linger: -1}
				serve, serveTLS, end = s.Serve, s.ServeTLS, s.Shutdown
			}
			served := make(chan error, 1)
			go func() {
				if j == 1 {
					served <- serveTLS(ln, "", "")
				} else {
					served <- serve(ln)
				}
			}()
			f.Cleanup(func() {
				check.OK(f, end(context.Background()))
				check.Is(f, await.Value(f, served), http.ErrServerClosed)
			})
		}
	}
	f.Fuzz(func(t *testing.T, data, cuts []byte, secure bool) {
		if len(data) > 32<<10 {
			return // net/http waits for half a second after it has rejected a large head
		}
		j := 0
		if secure {
			j = 1
		}
		type answer struct {
			text  string
			reset bool
		}
		var answers [2]chan answer
		for i := range answers {
			answers[i] = make(chan answer, 1)
			go func() {
				text, reset := ask(t, addresses[i][j], secure, data, cuts)
				answers[i] <- answer{text, reset}
			}()
		}
		want, got := await.Value(t, answers[0]), await.Value(t, answers[1])
		same := got.text == want.text
		if want.reset || got.reset {
			same = strings.HasPrefix(want.text, got.text) || strings.HasPrefix(got.text, want.text)
		}
		if !same {
			t.Errorf("got\n%q (reset %t), want\n%q (reset %t)", got.text, got.reset, want.text, want.reset)
		}
	})
}

// ask sends data and returns the answers. reset reports that the connection did not end with io.EOF.
func ask(t *testing.T, address string, secure bool, data, cuts []byte) (text string, reset bool) {
	raw, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return "", false
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(conntest.Timeout))
	conn := raw
	if secure {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			t.Error(err)
			return "", false
		}
		conn = c
	}
	go func() {
		cut(data, cuts, func(piece []byte, pause bool) {
			conn.Write(piece)
			if pause {
				await.Pause(time.Millisecond)
			}
		})
		conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	return httpcorpus.MaskDates(string(got)), err != nil
}
