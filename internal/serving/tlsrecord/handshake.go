package tlsrecord

import (
	"bytes"
	"crypto/fips140"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
)

// Why a connection stays with crypto/tls.
var (
	ErrSuite = errors.New("socknotify: TLS version or cipher suite that crypto/tls alone speaks")
	// ErrNoSecrets is for TLS 1.2 also the error of a session that was resumed, for which
	// crypto/tls logs no secret.
	ErrNoSecrets = errors.New("socknotify: crypto/tls has logged no secrets of the connection")
	ErrNoMaster  = errors.New("socknotify: TLS 1.2 without extended master secret")
	ErrFIPS      = errors.New("socknotify: FIPS 140-3 mode")
	// ErrNotProved means that the last record that crypto/tls has sent is not the one expected.
	ErrNotProved = errors.New("socknotify: the numbers of the TLS records are not known")
)

// A Handshake follows a server's handshake, which crypto/tls makes: the secrets that it logs, and
// the records that it receives and sends. Take then continues the connection without crypto/tls.
//
// The connection below crypto/tls calls Part for what it gives to crypto/tls, and Sent for what
// crypto/tls sends. A Handshake has no lock.
type Handshake struct {
	next io.Writer // the program's own KeyLogWriter

	clientRandom, master   secret // of TLS 1.2
	client, server, hiding secret // traffic secrets: both sides' data, and the server's handshake

	cut cutter // of what is given to crypto/tls

	random [32]byte // the server's
	last   []byte   // the last record sent
	sent   int      // records sent
	began  int      // records received since the client's change_cipher_spec
	cipher bool     // the client's change_cipher_spec has come
}

// A secret is a number of the key log, of n bytes. n is 0 if it is not known.
type secret struct {
	b [maxSecret]byte
	n int
}

func (s *secret) bytes() []byte { return s.b[:s.n] }

// Config returns the configuration for the handshake of one connection. It has base's ticket keys
// as they are now. The program's callbacks see its own connection, conn.
func (h *Handshake) Config(base *tls.Config, conn net.Conn) *tls.Config {
	renewTicketKeys(base)
	config := base.Clone()
	h.prepare(config, conn)
	if get := config.GetConfigForClient; get != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			hello.Conn = conn
			own, err := get(hello)
			if own == nil || err != nil {
				return own, err
			}
			own = own.Clone()
			h.prepare(own, conn)
			return own, nil
		}
	}
	return config
}

// prepare gives a copy of a configuration the key log of this handshake.
func (h *Handshake) prepare(config *tls.Config, conn net.Conn) {
	h.next, config.KeyLogWriter = config.KeyLogWriter, h
	if get := config.GetCertificate; get != nil {
		config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			hello.Conn = conn
			return get(hello)
		}
	}
}

// renewTicketKeys makes the automatic ticket keys of a configuration where there are none, and
// rotates them; Clone copies them. It is done by the attempt to decrypt an empty ticket.
func renewTicketKeys(c *tls.Config) {
	renew := func() { c.DecryptTicket(nil, tls.ConnectionState{}) }
	if c.Time == nil {
		renew()
		return
	}
	// The program's Time may panic, or call runtime.Goexit. crypto/tls calls it again, and has that
	// happen when the ClientHello has been read.
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		renew()
	}()
	<-done
}

// Write takes a line of the key log.
func (h *Handshake) Write(line []byte) (int, error) {
	label, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	random, value, ok := bytes.Cut(rest, []byte(" "))
	if ok {
		switch string(label) {
		case "CLIENT_RANDOM":
			h.clientRandom.decode(random)
			h.master.decode(value)
		case "CLIENT_TRAFFIC_SECRET_0":
			h.client.decode(value)
		case "SERVER_TRAFFIC_SECRET_0":
			h.server.decode(value)
		case "SERVER_HANDSHAKE_TRAFFIC_SECRET":
			h.hiding.decode(value)
		}
	}
	if h.next != nil {
		return h.next.Write(line)
	}
	return len(line), nil
}

func (s *secret) decode(value []byte) {
	s.n = 0
	if len(value) > 2*len(s.b) {
		return
	}
	if n, err := hex.Decode(s.b[:], value); err == nil {
		s.n = n
	}
}

// Part returns how many of the bytes that have arrived are to be given to crypto/tls.
func (h *Handshake) Part(b []byte) int {
	was := h.cut.records
	n := h.cut.part(b)
	switch {
	case h.cut.records == was:
	case h.cut.head[0] == typeChangeCipherSpec:
		h.cipher = true
	case h.cipher:
		h.began++
	}
	return n
}

// Sent is told what crypto/tls sends: whole records.
func (h *Handshake) Sent(b []byte) {
	for len(b) >= headerSize {
		n := min(recordSize(b), len(b))
		const random = headerSize + 4 + 2 // after the type, the length and the version
		if h.sent == 0 && b[0] == typeHandshake && n >= random+len(h.random) {
			copy(h.random[:], b[random:])
		}
		h.last = append(h.last[:0], b[:n]...)
		h.sent++
		b = b[n:]
	}
}

// Take returns the records of a connection whose handshake has just succeeded, before any Read.
// From then on the wire must be cut for crypto/tls. The error says why the connection stays with
// it.
//
// The proof that sequence numbers are right is the last record that crypto/tls has sent: it opens
// with the keys and the number that it must have.
func (h *Handshake) Take(state *tls.ConnectionState) (*Records, error) {
	defer h.wipe()
	r, ok := newRecords(state.Version, state.CipherSuite)
	switch {
	case fips140.Enabled():
		return nil, ErrFIPS
	case !ok:
		return nil, ErrSuite
	case !h.cut.between():
		return nil, ErrNotProved
	}
	take := h.take12
	if r.is13() {
		take = h.take13
	}
	if err := take(r, state); err != nil {
		return nil, err
	}
	return r, nil
}

func (h *Handshake) take13(r *Records, _ *tls.ConnectionState) error {
	s := r.is()
	if h.client.n != s.secret || h.server.n != s.secret || h.hiding.n != s.secret {
		return ErrNoSecrets
	}
	r.inKeys().set(s, h.client.bytes())
	r.outKeys().set(s, h.server.bytes())
	const tickets = 4 // crypto/tls sends one, or none
	if n, ok := h.numberOfLast(r, messageSessionTicket, tickets); ok {
		r.out.seq = n + 1
		return nil
	}
	before := &Records{suite: r.suite, keys: make([]byte, len(r.keys))}
	before.outKeys().set(s, h.hiding.bytes())
	if _, ok := h.numberOfLast(before, messageFinished, h.sent); !ok {
		return ErrNotProved
	}
	return nil
}

func (h *Handshake) take12(r *Records, state *tls.ConnectionState) error {
	if h.clientRandom.n != len(h.random) || h.master.n != masterSize {
		return ErrNoSecrets
	}
	if _, err := state.ExportKeyingMaterial("EXPERIMENTAL", nil, 1); err != nil {
		return ErrNoMaster
	}
	set12(r.is(), r.inKeys(), r.outKeys(), h.master.bytes(), h.clientRandom.bytes(), h.random[:])
	// Each side has sent one record with the new keys, its Finished.
	if _, ok := h.numberOfLast(r, messageFinished, 1); !ok || h.began != 1 {
		return ErrNotProved
	}
	r.in.seq, r.out.seq = 1, 1
	return nil
}

// numberOfLast returns the number of the last record sent. It is below most, and the record opens
// with the sending keys of r, and is a message of a type. Otherwise ok is false.
func (h *Handshake) numberOfLast(r *Records, kind byte, most int) (n uint64, ok bool) {
	if len(h.last) < headerSize {
		return 0, false
	}
	probe := &Records{suite: r.suite, keys: bytes.Repeat(r.outKeys(), 2)}
	defer clear(probe.keys)
	plain := make([]byte, len(h.last))
	for n := range uint64(most) {
		probe.in.seq = n
		content, is, a := probe.decrypt(plain, h.last)
		if a == 0 && is == typeHandshake && len(content) > 0 && content[0] == kind {
			return n, true
		}
	}
	return 0, false
}

// wipe overwrites what is not needed after the handshake.
func (h *Handshake) wipe() { *h = Handshake{next: h.next, cut: h.cut} }
