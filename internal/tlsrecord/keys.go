package tlsrecord

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"hash"
)

const (
	maxSecret = sha512.Size384
	maxKey    = 32 // AES-256
	nonceSize = 12
	tagSize   = 16
)

// A suite is a cipher suite of both versions: AES-GCM, and the hash of its key derivation.
type suite struct {
	version uint16
	key     int // bytes
	hash    func() hash.Hash
}

// suites are those that this package speaks. ChaCha20-Poly1305 is not among them, because the
// standard library does not export it.
var suites = map[uint16]*suite{
	tls.TLS_AES_128_GCM_SHA256:                  {tls.VersionTLS13, 16, sha256.New},
	tls.TLS_AES_256_GCM_SHA384:                  {tls.VersionTLS13, 32, sha512.New384},
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:   {tls.VersionTLS12, 16, sha256.New},
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: {tls.VersionTLS12, 16, sha256.New},
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384:   {tls.VersionTLS12, 32, sha512.New384},
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: {tls.VersionTLS12, 32, sha512.New384},
}

// expandLabel is HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context.
func (s *suite) expandLabel(secret []byte, label string, length int) []byte {
	info := make([]byte, 0, 4+len("tls13 ")+len(label))
	info = append(info, byte(length>>8), byte(length), byte(len("tls13 ")+len(label)))
	info = append(append(info, "tls13 "...), label...)
	info = append(info, 0)
	out, err := hkdf.Expand(s.hash, secret, string(info), length)
	if err != nil {
		panic(err) // the length is too large for the hash
	}
	return out
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

// A half is one direction of a connection.
type half struct {
	seq    uint64 // of the next record
	aead   cipher.AEAD
	secret [maxSecret]byte // TLS 1.3: that the next keys are made from
	key    [maxKey]byte
	// iv is all of the nonce but the number, which is added for a record and taken away after it. In
	// TLS 1.2 the last eight bytes are set for each record.
	iv [nonceSize]byte
	// extra is an argument of the cipher. As a local variable it would be allocated.
	extra [8 + headerSize]byte
}

// setSecret begins with a traffic secret of TLS 1.3.
func (h *half) setSecret(s *suite, secret []byte) {
	copy(h.secret[:], secret)
	copy(h.key[:], s.expandLabel(secret, "key", s.key))
	copy(h.iv[:], s.expandLabel(secret, "iv", nonceSize))
	h.seq, h.aead = 0, nil
}

// update changes to the next traffic secret (RFC 8446, section 7.2).
func (h *half) update(s *suite) {
	size := s.hash().Size()
	h.setSecret(s, s.expandLabel(h.secret[:size], "traffic upd", size))
}

// setKeys12 derives the keys of both directions from the master secret of TLS 1.2, at a server.
func setKeys12(s *suite, in, out *half, master, clientRandom, serverRandom []byte) {
	const iv = 4
	seed := append(append([]byte(nil), serverRandom...), clientRandom...)
	block := s.prf(master, "key expansion", seed, 2*(s.key+iv))
	for _, to := range []struct {
		dst  []byte
		size int
	}{{in.key[:], s.key}, {out.key[:], s.key}, {in.iv[:], iv}, {out.iv[:], iv}} {
		copy(to.dst, block[:to.size])
		block = block[to.size:]
	}
}

// cipher returns the cipher, and makes it where there is none.
func (h *half) cipher(s *suite) cipher.AEAD {
	if h.aead == nil {
		block, err := aes.NewCipher(h.key[:s.key])
		if err == nil {
			h.aead, err = cipher.NewGCM(block)
		}
		if err != nil {
			panic(err) // the size of the key is wrong
		}
	}
	return h.aead
}
