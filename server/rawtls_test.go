package server_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"net"
	"strings"
	"testing"
)

// Types of TLS 1.3 records and messages.
const (
	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23

	messageTicket    = 4
	messageKeyUpdate = 24
)

// A rawTLS is a client of TLS 1.3 after its handshake, record by record. Crypto/tls cannot be told to send
// what comes after it.
type rawTLS struct {
	net.Conn
	t           testing.TB
	read, write *half
	updates     int // of the server's keys
	tickets     int
	alert       byte // the server's
	alerted     bool
}

// A half is the protection of one direction.
type half struct {
	t      testing.TB
	hash   func() hash.Hash
	keyLen int
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

func dialRawTLS(t testing.TB, addr string, config *tls.Config) *rawTLS {
	t.Helper()
	var log bytes.Buffer
	config = config.Clone()
	config.KeyLogWriter, config.MinVersion = &log, tls.VersionTLS13
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1) // or there would be no tickets
	c := dial(t, addr)
	tc := tls.Client(&recordwise{Conn: c}, config)
	must(t, tc.Handshake())
	r := &rawTLS{Conn: c, t: t}
	secrets := map[string][]byte{}
	for line := range strings.Lines(log.String()) {
		f := strings.Fields(line)
		secret, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		secrets[f[0]] = secret
	}
	newHalf := func(name string) *half {
		h := &half{t: t, secret: secrets[name]}
		switch suite := tc.ConnectionState().CipherSuite; suite {
		case tls.TLS_AES_128_GCM_SHA256:
			h.hash, h.keyLen = sha256.New, 16
		case tls.TLS_AES_256_GCM_SHA384:
			h.hash, h.keyLen = sha512.New384, 32
		default:
			t.Skipf("%s: crypto/tls uses no AES on this processor", tls.CipherSuiteName(suite))
		}
		h.keys()
		return h
	}
	r.write, r.read = newHalf("CLIENT_TRAFFIC_SECRET_0"), newHalf("SERVER_TRAFFIC_SECRET_0")
	return r
}

// A recordwise gives no byte of a record that was not asked for yet, such as the tickets that come with the
// end of the handshake.
type recordwise struct {
	net.Conn
	head []byte
	left int
}

func (c *recordwise) Read(b []byte) (int, error) {
	if c.left == 0 {
		n, err := c.Conn.Read(b[:min(len(b), 5-len(c.head))])
		if c.head = append(c.head, b[:n]...); len(c.head) == 5 {
			c.left = int(binary.BigEndian.Uint16(c.head[3:]))
			c.head = nil
		}
		return n, err
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// derive is HKDF-Expand-Label of RFC 8446, section 7.1, without a context.
func (h *half) derive(label string, n int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
	key, err := hkdf.Expand(h.hash, h.secret, string(append(append(info, label...), 0)), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

func (h *half) keys() {
	block, err := aes.NewCipher(h.derive("key", h.keyLen))
	if err == nil {
		h.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.iv, h.seq = h.derive("iv", 12), 0
}

func (h *half) update() {
	h.secret = h.derive("traffic upd", len(h.secret))
	h.keys()
}

func (h *half) nonce() []byte {
	nonce := bytes.Clone(h.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(h.seq >> (56 - 8*i))
	}
	h.seq++
	return nonce
}

// record makes one of the client's.
func (r *rawTLS) record(typ byte, content string) string {
	n := len(content) + 1 + r.write.aead.Overhead()
	head := []byte{typeData, 3, 3, byte(n >> 8), byte(n)}
	return string(r.write.aead.Seal(head, r.write.nonce(), append([]byte(content), typ), head))
}

// keyUpdate makes a record with which the client's keys change, and those of the server if it is asked to.
func (r *rawTLS) keyUpdate(request byte) string {
	rec := r.record(typeHandshake, string([]byte{messageKeyUpdate, 0, 0, 1, request}))
	r.write.update()
	return rec
}

// next receives a record of the server's.
func (r *rawTLS) next() (typ byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r.Conn, head[:]); err != nil {
		return 0, nil, err
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(r.Conn, body); err != nil {
		return 0, nil, err
	}
	plain, err := r.read.aead.Open(nil, r.read.nonce(), body, head[:])
	if err != nil {
		return 0, nil, err
	}
	plain = bytes.TrimRight(plain, "\x00")
	return plain[len(plain)-1], plain[:len(plain)-1], nil
}

// receive receives data, and follows what else comes. Without data it ends after a change of keys or an alert.
func (r *rawTLS) receive() (data []byte, err error) {
	for {
		typ, content, err := r.next()
		switch {
		case err != nil:
			return nil, err
		case typ == typeData:
			return content, nil
		case typ == typeAlert && len(content) == 2:
			r.alert, r.alerted = content[1], true
			return nil, nil
		case typ == typeHandshake && len(content) == 5 && content[0] == messageKeyUpdate:
			if content[4] != 0 {
				r.t.Error("the server asks for a change of keys")
			}
			r.updates++
			r.read.update()
			return nil, nil
		case typ == typeHandshake && len(content) > 4 && content[0] == messageTicket:
			r.tickets++
		default:
			r.t.Errorf("record of type %d: %x", typ, content)
		}
	}
}
