package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// The same records are sent to crypto/tls and to a Conn, and what they answer and return must be
// equal.

// A raw is a client that sends records of its own making.
type raw struct {
	net.Conn
	r *Records
}

// A recorder keeps the first bytes that are received.
type recorder struct {
	wire
	got []byte
}

func (c *recorder) Read(b []byte) (int, error) {
	n, err := c.wire.Read(b)
	if len(c.got) < 128 {
		c.got = append(c.got, b[:n]...)
	}
	return n, err
}

// dial makes the handshake with crypto/tls, and takes the client's side over.
func dial(t testing.TB, conn net.Conn, config *tls.Config) *raw {
	t.Helper()
	w := &recorder{wire: wire{Conn: conn}}
	config = config.Clone()
	config.KeyLogWriter = &w.Handshake
	client := tls.Client(w, config)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	state := client.ConnectionState()
	r, ok := newRecords(state.Version, state.CipherSuite)
	if !ok {
		t.Fatal("suite ", state.CipherSuite)
	}
	if s := r.is(); r.is13() {
		r.inKeys().set(s, w.server.bytes())
		r.outKeys().set(s, w.client.bytes())
	} else {
		serverRandom := w.got[headerSize+4+2:][:32]
		set12(s, r.outKeys(), r.inKeys(), w.master.bytes(), w.clientRandom.bytes(), serverRandom)
		r.in.seq, r.out.seq = 1, 1
	}
	w.over = true // it may have received what came behind the handshake
	return &raw{w, r}
}

// record makes a record.
func (c *raw) record(kind byte, data string) []byte { return c.r.seal(nil, kind, []byte(data)) }

// data is a record with data.
func (c *raw) data(s string) []byte { return c.record(typeData, s) }

// padded is a record of TLS 1.3 with its type and what follows that.
func (c *raw) padded(content string) []byte {
	n := len(content) + tagSize
	head := []byte{typeData, 3, 3, byte(n >> 8), byte(n)}
	h := &c.r.out
	w := h.cipher(c.r.is(), c.r.outKeys())
	w.addNumber(h.seq)
	b := w.aead.Seal(head, w.nonce[:], []byte(content), head)
	w.addNumber(h.seq)
	h.seq++
	return b
}

// update is a KeyUpdate, after which the client has another key.
func (c *raw) update(request byte) []byte {
	b := c.record(typeHandshake, string([]byte{messageKeyUpdate, 0, 0, 1, request}))
	c.r.nextOut()
	return b
}

// answers reads what the server sends until the end, as text.
func (c *raw) answers() (got []string) {
	var wire bytes.Buffer
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.Copy(&wire, c.Conn)
	if err != nil && !isReset(err) {
		got = append(got, "error: "+err.Error())
	}
	for wire.Len() >= headerSize {
		head := wire.Bytes()[:headerSize]
		n := headerSize + (int(head[3])<<8 | int(head[4]))
		if wire.Len() < n {
			break
		}
		content, kind, a := c.r.decrypt(nil, wire.Next(n))
		switch {
		case a != 0:
			return append(got, "a record that does not open")
		case kind == typeHandshake && content[0] == messageSessionTicket:
			continue
		case kind == typeHandshake && content[0] == messageKeyUpdate:
			c.r.nextIn()
		}
		if len(content) > 40 {
			content = fmt.Appendf(nil, "%d bytes, %x", len(content), content[:8])
		}
		got = append(got, fmt.Sprintf("%d: %q", kind, content))
	}
	return got
}

func isReset(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && !e.Timeout()
}

var (
	cert, trust, _ = selfcert.New(1000*time.Hour, "example.test")
	base           = &tls.Config{
		Certificates:                []tls.Certificate{cert},
		DynamicRecordSizingDisabled: true, // a Conn has none
	}
	clientConfig = &tls.Config{RootCAs: trust, ServerName: "example.test"}
)

// loopback returns two ends of a TCP connection.
func loopback(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// echo reads until an error, and writes what it has read, in pieces of the same sizes. It ends the
// connection, and returns the error with what a program can see of it.
func echo(c net.Conn) string {
	defer func() {
		c.(interface{ CloseWrite() error }).CloseWrite()
		below := c.(interface{ NetConn() net.Conn }).NetConn()
		below.(interface{ CloseWrite() error }).CloseWrite()
		io.Copy(io.Discard, below) // otherwise the client gets a reset, and may lose what was sent
		below.Close()
	}()
	b := make([]byte, 40_000)
	for {
		n, err := c.Read(b)
		if n > 0 {
			if _, err := c.Write(b[:n]); err != nil {
				return "write: " + describe(err)
			}
		}
		if err != nil {
			return describe(err)
		}
	}
}

func describe(err error) string {
	s := err.Error()
	var op *net.OpError
	if errors.As(err, &op) {
		s += ", Op " + op.Op
	}
	var e net.Error
	if errors.As(err, &e) {
		s += fmt.Sprint(", ", e.Timeout())
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		s += fmt.Sprintf(", %x %v", header.RecordHeader, header.Conn)
	}
	return s
}

// A rawCase sends something and then, unless open, ends its stream.
type rawCase struct {
	name string
	send func(c *raw) []byte
	only uint16 // a version, or 0
	// differs is how a Conn differs from crypto/tls, which is checked to differ.
	differs string
}

func times(n int, f func() []byte) (b []byte) {
	for range n {
		b = append(b, f()...)
	}
	return b
}

func join(bs ...[]byte) []byte { return bytes.Join(bs, nil) }

func rawCases() (cases []rawCase) {
	add := func(name string, send func(c *raw) []byte) *rawCase {
		cases = append(cases, rawCase{name: name, send: send})
		return &cases[len(cases)-1]
	}
	add13 := func(name string, send func(c *raw) []byte) *rawCase {
		c := add(name, send)
		c.only = tls.VersionTLS13
		return c
	}
	add12 := func(name string, send func(c *raw) []byte) *rawCase {
		c := add(name, send)
		c.only = tls.VersionTLS12
		return c
	}

	add("nothing", func(c *raw) []byte { return nil })
	for _, n := range []int{1, 2, 100, 1_300, 16_383, 16_384} {
		add(fmt.Sprint("data/", n), func(c *raw) []byte { return c.data(string(make([]byte, n))) })
	}
	add("data/too long", func(c *raw) []byte { return c.data(string(make([]byte, 16_385))) })
	add("data/coalesced", func(c *raw) []byte { return join(c.data("ab"), c.data("c"), c.data("def")) })
	add("data/then close_notify", func(c *raw) []byte { return join(c.data("ab"), c.record(typeAlert, "\x01\x00")) })
	add("data/after close_notify", func(c *raw) []byte { return join(c.record(typeAlert, "\x01\x00"), c.data("ab")) })
	add("data/twice the same", func(c *raw) []byte { b := c.data("ab"); return join(b, b) })
	add("data/out of order", func(c *raw) []byte { a, b := c.data("a"), c.data("b"); return join(b, a) })
	add("data/one missing", func(c *raw) []byte { c.data("a"); return c.data("b") })
	for _, n := range []int{1, 15, 16, 17, 18} {
		add(fmt.Sprint("empty/", n), func(c *raw) []byte {
			return times(n, func() []byte { return c.data("") })
		})
		add(fmt.Sprint("empty/", n, " and data"), func(c *raw) []byte {
			return join(times(n, func() []byte { return c.data("") }), c.data("x"))
		})
	}
	add("empty/16, data, 16", func(c *raw) []byte {
		e := func() []byte { return times(16, func() []byte { return c.data("") }) }
		return join(e(), c.data("x"), e(), c.data("y"))
	})

	for n := range 3 * 17 {
		add(fmt.Sprint("damaged/", n), func(c *raw) []byte {
			b := c.data(string(make([]byte, 20)))
			at := min(n, len(b)-1)
			if at == 3 || at == 4 { // a longer record: bytes are missing
				b[4]++
				return b
			}
			b[at] ^= 0x40
			return b
		})
		add(fmt.Sprint("truncated/", n), func(c *raw) []byte {
			b := join(c.data("ab"), c.data(string(make([]byte, 20))))
			return b[:min(n, len(b))]
		})
	}

	for _, version := range []int{0x0000, 0x0300, 0x0301, 0x0302, 0x0304, 0xffff} {
		add(fmt.Sprintf("version/%04x", version), func(c *raw) []byte {
			b := c.data("ab")
			b[1], b[2] = byte(version>>8), byte(version)
			return b
		})
	}
	for _, n := range []int{0, 1, 7, 8, 16, 23, 24, 16_384 + 255, 16_384 + 256, 16_384 + 257, 18_431, 18_432, 18_433, 65_535} {
		add(fmt.Sprint("length/", n), func(c *raw) []byte {
			return append([]byte{typeData, 3, 3, byte(n >> 8), byte(n)}, make([]byte, n)...)
		})
	}
	for kind := range 256 {
		if kind < 18 || kind > 26 && kind%17 != 0 {
			continue
		}
		if kind >= 20 && kind <= 23 {
			continue
		}
		add(fmt.Sprint("type/", kind), func(c *raw) []byte { return c.record(byte(kind), "ab") })
		add(fmt.Sprint("type/empty ", kind), func(c *raw) []byte { return c.record(byte(kind), "") })
	}
	for _, kind := range []byte{0, 20, 21, 22, 24, 128} {
		add13(fmt.Sprint("outer type/", kind), func(c *raw) []byte {
			b := c.data("ab")
			b[0] = kind // not what the tag is for
			return b
		})
	}
	add12("type of another/21", func(c *raw) []byte { b := c.data("\x01\x00"); b[0] = typeAlert; return b })

	for _, s := range []string{"\x01", "\x00", "\x02", "\x01\x01", ""} {
		ccs := append([]byte{typeChangeCipherSpec, 3, 3, 0, byte(len(s))}, s...)
		add13(fmt.Sprintf("change_cipher_spec/%q", s), func(c *raw) []byte { return join(ccs, c.data("x")) })
		add(fmt.Sprintf("change_cipher_spec/encrypted %q", s), func(c *raw) []byte {
			return join(c.record(typeChangeCipherSpec, s), c.data("x"))
		})
	}
	for _, n := range []int{16, 17} {
		add13(fmt.Sprint("change_cipher_spec/", n), func(c *raw) []byte {
			return join(bytes.Repeat([]byte{typeChangeCipherSpec, 3, 3, 0, 1, 1}, n), c.data("x"))
		})
	}

	for code := range 256 {
		if code > 125 && code%19 != 0 {
			continue
		}
		for _, level := range []byte{1, 2} {
			add(fmt.Sprint("alert/", level, " ", code), func(c *raw) []byte {
				return join(c.record(typeAlert, string([]byte{level, byte(code)})), c.data("x"))
			})
		}
	}
	for _, s := range []string{"", "\x01", "\x01\x00\x00", "\x03\x0a", "\x00\x00", "\xff\xff"} {
		add(fmt.Sprintf("alert/%q", s), func(c *raw) []byte { return join(c.record(typeAlert, s), c.data("x")) })
	}
	for _, n := range []int{16, 17} {
		add12(fmt.Sprint("alert/warnings ", n), func(c *raw) []byte {
			return join(times(n, func() []byte { return c.record(typeAlert, "\x01\x5a") }), c.data("x"))
		})
		add13(fmt.Sprint("alert/user canceled ", n), func(c *raw) []byte {
			return join(times(n, func() []byte { return c.record(typeAlert, "\x01\x5a") }), c.data("x"))
		})
	}

	for _, s := range []string{"\x17", "x\x17", "x\x17\x00", "\x17\x00\x00", "x\x17" + string(make([]byte, 200)), "\x00", "\x00\x00\x00", "", "\x15", "\x16", "\x14"} {
		add13(fmt.Sprintf("padding/%.6q %d", s, len(s)), func(c *raw) []byte { return c.padded(s) })
	}
	add13("padding/full", func(c *raw) []byte { return c.padded("x\x17" + string(make([]byte, 16_383))) })
	add13("padding/over", func(c *raw) []byte { return c.padded("x\x17" + string(make([]byte, 16_384))) })

	for _, request := range []byte{0, 1} {
		for _, n := range []int{1, 2, 16, 17} {
			c := add13(fmt.Sprint("key update/", request, " times ", n), func(c *raw) []byte {
				return join(times(n, func() []byte { return c.update(request) }), c.data("x"))
			})
			_ = c
		}
		add13(fmt.Sprint("key update/", request, " between data"), func(c *raw) []byte {
			return join(c.data("a"), c.update(request), c.data("b"), c.update(request), c.data("c"))
		})
	}
	add13("key update/old key after it", func(c *raw) []byte {
		return join(c.record(typeHandshake, "\x18\x00\x00\x01\x00"), c.data("x"))
	})
	for _, s := range []string{"\x18\x00\x00\x01\x02", "\x18\x00\x00\x00", "\x18\x00\x00\x02\x00\x00", "\x18\x00\x00\x01\xff"} {
		add13(fmt.Sprintf("key update/%q", s), func(c *raw) []byte { return join(c.record(typeHandshake, s), c.data("x")) })
	}
	add13("key update/two in a record", func(c *raw) []byte {
		return c.record(typeHandshake, "\x18\x00\x00\x01\x00\x18\x00\x00\x01\x00")
	})
	for at := 1; at < 5; at++ {
		add13(fmt.Sprint("key update/split at ", at), func(c *raw) []byte {
			const s = "\x18\x00\x00\x01\x01"
			b := join(c.record(typeHandshake, s[:at]), c.record(typeHandshake, s[at:]))
			c.r.nextOut()
			return join(b, c.data("x"))
		})
		add13(fmt.Sprint("key update/interrupted at ", at), func(c *raw) []byte {
			const s = "\x18\x00\x00\x01\x01"
			return join(c.record(typeHandshake, s[:at]), c.data("x"), c.record(typeHandshake, s[at:]))
		})
	}
	add("handshake/empty", func(c *raw) []byte { return c.record(typeHandshake, "") })
	add("handshake/unknown type", func(c *raw) []byte { return c.record(typeHandshake, "\x63\x00\x00\x00") })
	add12("handshake/hello request", func(c *raw) []byte { return c.record(typeHandshake, "\x00\x00\x00\x00") })
	add12("handshake/hello request with a body", func(c *raw) []byte { return c.record(typeHandshake, "\x00\x00\x00\x01x") })
	add("handshake/too long", func(c *raw) []byte { return c.record(typeHandshake, "\x01\x01\x00\x01") })
	add("handshake/certificate too long", func(c *raw) []byte { return c.record(typeHandshake, "\x0b\x04\x00\x01") })
	for _, body := range []string{"\x14\x00\x00\x02ab", "\x05\x00\x00\x00", "\x0e\x00\x00\x00"} {
		add(fmt.Sprintf("handshake/%q", body), func(c *raw) []byte { return c.record(typeHandshake, body) })
	}
	add13("handshake/session ticket", func(c *raw) []byte {
		return c.record(typeHandshake, "\x04\x00\x00\x0f\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x02tt\x00\x00")
	})
	add("handshake/client hello that is none", func(c *raw) []byte {
		return c.record(typeHandshake, "\x01\x00\x00\x00")
	}).differs = "a message is refused by its head"
	return cases
}

var bySuite = []struct {
	name    string
	version uint16
	suite   uint16
}{
	{"TLS 1.3", tls.VersionTLS13, 0}, // AES-128 or -256 is the server's choice: see TestSuites
	{"TLS 1.2, AES-128", tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	{"TLS 1.2, AES-256", tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
}

func TestRaw(t *testing.T) {
	t.Parallel()
	for _, s := range bySuite {
		t.Run(s.name, func(t *testing.T) {
			config := clientConfig.Clone()
			config.MaxVersion = s.version
			if s.suite != 0 {
				config.CipherSuites = []uint16{s.suite}
			}
			for _, k := range rawCases() {
				if k.only != 0 && k.only != s.version {
					continue
				}
				t.Run(k.name, func(t *testing.T) {
					t.Parallel()
					want := k.outcome(t, config, func(c net.Conn) (net.Conn, error) {
						conn := tls.Server(c, base)
						return conn, conn.Handshake()
					})
					got := k.outcome(t, config, func(c net.Conn) (net.Conn, error) {
						return shake(c, base)
					})
					if equal := got == want; equal != (k.differs == "") {
						t.Errorf("got\n%s\ncrypto/tls:\n%s", got, want)
					}
				})
			}
		})
	}
}

func (k rawCase) outcome(t *testing.T, config *tls.Config, serve func(net.Conn) (net.Conn, error)) string {
	t.Helper()
	client, server := loopback(t)
	result := make(chan string, 1)
	go func() {
		c, err := serve(server)
		if err != nil {
			server.Close()
			result <- "handshake: " + err.Error()
			return
		}
		result <- echo(c)
	}()
	c := dial(t, client, config)
	c.Write(k.send(c))
	client.(*net.TCPConn).CloseWrite()
	answers := c.answers()
	return fmt.Sprintf("%q\n%s", answers, <-result)
}
