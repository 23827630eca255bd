package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// FuzzBegins compares Begins with what crypto/tls does with the same bytes. Where Begins reports that
// the first record is not complete, crypto/tls does nothing but ask for more. Otherwise it has
// refused the bytes, or has taken a record.
func FuzzBegins(f *testing.F) {
	cert, trust, err := selfcert.New(time.Hour, "localhost")
	if err != nil {
		f.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, max := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		var hello stranger
		tls.Client(&hello, &tls.Config{RootCAs: trust, ServerName: "localhost", MaxVersion: max}).Handshake()
		f.Add(hello.wrote)
		f.Add(hello.wrote[:len(hello.wrote)-1])
		f.Add(hello.wrote[:5])
		f.Add(append(bytes.Clone(hello.wrote), hello.wrote...))
	}
	for _, text := range []string{"", "\x16", "\x16\x03\x01\x02", "\x16\x03\x01\x48\x00", "\x16\x03\x01\x48\x01", "\x16\x10\x00\x00\x05",
		"\x15\x03\x01\x00\x02", "\x15\x03\x01\x00\x02\x02\x28", "\x15\x03\x01\x00\x02\x01\x5a", "\x15\x03\x01\x48\x01", "\x16\x03\x01\x00\x00",
		"\x80\x2e\x01\x00\x02", "\x80\x2e\x01", "GET / HTTP/1.1\r\n\r\n", "GET", "\x17\x03\x03\x00\x01", "\x14\x03\x03\x00\x01\x01",
		"\x16\x03\x01\x00\x04\x01\x00\x01\x00", "\x16\x03\x01\x00\x04\x01\x00\x01\x00\x15\x03\x01", "\x16\xff\xff\xff\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &stranger{sends: b}
		err := tls.Server(s, config).Handshake()
		asks := errors.Is(err, errSilent) // it took all of b, and asked for more
		switch whole := Begins(b); {
		case !whole && (!asks || len(s.wrote) > 0):
			t.Errorf("crypto/tls does not wait for more: %v, %d bytes sent", err, len(s.wrote))
		case whole && asks && len(s.wrote) == 0 && (recordSize(b) > len(b) || b[0] != typeHandshake && b[0] != typeAlert):
			t.Error("crypto/tls waits for the rest of the record")
		}
		for i := range b { // what was enough with fewer bytes is enough with more
			if Begins(b[:i]) && !Begins(b) {
				t.Errorf("enough after %d bytes, but not after %d", i, len(b))
			}
			if i > 32 {
				break
			}
		}
	})
}

var errSilent = errors.New("the peer is silent")

// A stranger is a connection on which some bytes come, and then nothing.
type stranger struct {
	sends, wrote []byte
}

func (s *stranger) Read(b []byte) (int, error) {
	if len(s.sends) == 0 {
		return 0, errSilent
	}
	n := copy(b, s.sends)
	s.sends = s.sends[n:]
	return n, nil
}

func (s *stranger) Write(b []byte) (int, error)      { s.wrote = append(s.wrote, b...); return len(b), nil }
func (s *stranger) Close() error                     { return nil }
func (s *stranger) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (s *stranger) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (s *stranger) SetDeadline(time.Time) error      { return nil }
func (s *stranger) SetReadDeadline(time.Time) error  { return nil }
func (s *stranger) SetWriteDeadline(time.Time) error { return nil }

// FuzzWire gives crypto/tls any bytes, in pieces of any size, during a handshake and after it. Each
// piece is of one record, together they are the bytes, and the count of records is right.
func FuzzWire(f *testing.F) {
	f.Add([]byte("\x17\x03\x03\x00\x02ab\x17\x03\x03\x00\x00\x15\x03\x03\x00\x01c"), []byte{1, 2, 3}, false)
	f.Add([]byte("\x17\x03\x03\x00\x02ab\x17\x03\x03\x00\x00\x15\x03\x03\x00\x01c"), []byte{255}, true)
	f.Add([]byte("\x17\x03\x03\xff\xffab"), []byte{4, 1, 255}, true)
	f.Add([]byte("\x17\x03\x03"), []byte{0}, false)
	f.Add(bytes.Repeat([]byte{0}, 100), []byte{7}, true)
	small := NewBuffers(func() *Buffer { return &Buffer{B: make([]byte, 50)} }) // so that records do not end with a buffer
	f.Fuzz(func(t *testing.T, b, sizes []byte, over bool) {
		ends := map[int]bool{} // of records in b
		heads := 0
		for at := 0; at+headerSize <= len(b); {
			heads++
			at += recordSize(b[at:])
			ends[at] = true
		}
		w := &wire{Conn: &stranger{sends: b}, over: over}
		if over {
			w.ahead = small
		}
		var got []byte
		for i := 0; len(got) < len(b); i++ {
			size := 512
			if len(sizes) > 0 {
				size = int(sizes[i%len(sizes)]) + 1
			}
			p := make([]byte, size)
			n, err := w.Read(p)
			if n == 0 || err != nil {
				t.Fatalf("%d bytes, %v, after %d of %d", n, err, len(got), len(b))
			}
			for k := len(got) + 1; k < len(got)+n; k++ {
				if ends[k] {
					t.Fatalf("a piece from %d to %d, across the end of a record at %d", len(got), len(got)+n, k)
				}
			}
			got = append(got, p[:n]...)
		}
		if !bytes.Equal(got, b) || w.cut.records != heads {
			t.Errorf("%d bytes of %d, or others; %d records of %d", len(got), len(b), w.cut.records, heads)
		}
		if n, err := w.Read(make([]byte, 1)); n != 0 || err != errSilent || w.buf != nil {
			t.Errorf("at the end: %d, %v; a buffer is kept: %v", n, err, w.buf != nil)
		}
	})
}
