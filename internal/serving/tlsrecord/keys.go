package tlsrecord

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"hash"
)

const (
	maxSecret  = sha512.Size384
	masterSize = 48 // of a master secret of TLS 1.2
	nonceSize  = 12
	tagSize    = 16
)

// A suite is a cipher suite of both versions: AES-GCM, and the hash of its key derivation.
type suite struct {
	version uint16
	id      uint16
	key     int // bytes
	secret  int // bytes of a traffic secret; TLS 1.2 has none
	hash    func() hash.Hash
}

// suites are those that this package speaks. ChaCha20-Poly1305 is not among them, because the
// standard library does not export it.
var suites = [...]suite{
	{tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256, 16, sha256.Size, sha256.New},
	{tls.VersionTLS13, tls.TLS_AES_256_GCM_SHA384, 32, sha512.Size384, sha512.New384},
	{tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, 16, 0, sha256.New},
	{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, 16, 0, sha256.New},
	{tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, 32, 0, sha512.New384},
	{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, 32, 0, sha512.New384},
}

// expandLabel is HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context. mac is HMAC
// with the secret; dst is no longer than its sum, so that one is enough. Package crypto/hkdf would
// make an HMAC for each label.
func expandLabel(dst []byte, mac hash.Hash, label string) {
	const prefix = "tls13 "
	info := make([]byte, 0, 32)
	info = append(info, byte(len(dst)>>8), byte(len(dst)), byte(len(prefix)+len(label)))
	info = append(append(info, prefix...), label...)
	info = append(info, 0, 1) // no context, and the number of the sum
	mac.Reset()
	mac.Write(info)
	copy(dst, mac.Sum(nil))
}

// prf is the pseudorandom function of TLS 1.2 (RFC 5246, section 5).
func (s *suite) prf(secret []byte, label string, seed []byte, length int) []byte {
	seed = append([]byte(label), seed...)
	mac := hmac.New(s.hash, secret)
	sum := func(parts ...[]byte) []byte {
		mac.Reset()
		for _, p := range parts {
			mac.Write(p)
		}
		return mac.Sum(nil)
	}
	var out []byte
	for a := sum(seed); len(out) < length; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:length]
}

// keys are the keys of one direction: the traffic secret that the next keys are made from, which
// TLS 1.2 does not have, then the key and the nonce without the number of a record. They stay while
// a connection is idle: to derive key and nonce again from the secret would save 28 bytes a
// direction, and double the time that it takes to wake a connection (see BenchmarkWake).
type keys []byte

// size is the number of bytes of the keys of one direction.
func (s *suite) size() int { return s.secret + s.key + nonceSize }

func (k keys) secret(s *suite) []byte { return k[:s.secret] }
func (k keys) key(s *suite) []byte    { return k[s.secret:][:s.key] }
func (k keys) nonce(s *suite) []byte  { return k[s.secret+s.key:] }

// set sets the keys that belong to a traffic secret of TLS 1.3.
func (k keys) set(s *suite, secret []byte) {
	mac := hmac.New(s.hash, secret)
	copy(k.secret(s), secret)
	expandLabel(k.key(s), mac, "key")
	expandLabel(k.nonce(s), mac, "iv")
}

// next sets the keys of the next traffic secret (RFC 8446, section 7.2).
func (k keys) next(s *suite) {
	next := make([]byte, s.secret)
	expandLabel(next, hmac.New(s.hash, k.secret(s)), "traffic upd")
	k.set(s, next)
}

// set12 sets the keys of both directions that belong to a master secret of TLS 1.2, at a server.
func set12(s *suite, in, out keys, master, clientRandom, serverRandom []byte) {
	const nonce = 4 // bytes; each record has the others
	seed := append(append([]byte(nil), serverRandom...), clientRandom...)
	block := s.prf(master, "key expansion", seed, 2*(s.key+nonce))
	for _, to := range [][]byte{
		in.key(s), out.key(s), in.nonce(s)[:nonce], out.nonce(s)[:nonce]} {
		copy(to, block)
		block = block[len(to):]
	}
}

// A half is one direction of a connection.
type half struct {
	seq  uint64 // of the next record
	work *work  // nil while the direction is idle and has not ended
}

// A work is what a direction has while it is used, and why it has ended. It is separate from the
// half, because it is not kept while a connection is idle.
type work struct {
	aead cipher.AEAD
	// nonce has the number of a record added for that record, and taken away after it. In TLS 1.2
	// its last eight bytes are set for each record.
	nonce [nonceSize]byte
	// extra is an argument of the cipher. As a local variable it would be allocated.
	extra [8 + headerSize]byte
	err   error // final
}

// err returns what has ended the direction, or nil.
func (h *half) err() error {
	if h.work == nil {
		return nil
	}
	return h.work.err
}

// end ends the direction.
func (h *half) end(err error) {
	if h.work == nil {
		h.work = new(work)
	}
	h.work.err = err
}

// drop releases the cipher.
func (h *half) drop() {
	if err := h.err(); err != nil {
		*h.work = work{err: err}
	} else {
		h.work = nil
	}
}

// rekey begins with new keys.
func (h *half) rekey() {
	h.drop()
	h.seq = 0
}

// cipher returns the work with its cipher, and makes that where there is none.
func (h *half) cipher(s *suite, k keys) *work {
	if h.work == nil {
		h.work = new(work)
	}
	w := h.work
	if w.aead == nil {
		block, err := aes.NewCipher(k.key(s))
		if err == nil {
			w.aead, err = cipher.NewGCM(block)
		}
		if err != nil {
			panic(err) // the size of the key is wrong
		}
		copy(w.nonce[:], k.nonce(s))
	}
	return w
}

// addNumber adds a record's number to the nonce, or takes it away.
func (w *work) addNumber(seq uint64) {
	n := w.nonce[4:]
	binary.BigEndian.PutUint64(n, binary.BigEndian.Uint64(n)^seq)
}

// extra12 returns the additional data of a record of TLS 1.2.
func (w *work) extra12(seq uint64, header []byte, n int) []byte {
	binary.BigEndian.PutUint64(w.extra[:], seq)
	copy(w.extra[8:], header)
	binary.BigEndian.PutUint16(w.extra[11:], uint16(n))
	return w.extra[:]
}
