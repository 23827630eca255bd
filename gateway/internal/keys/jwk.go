package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// A publicKey is a key of a set with which tokens are signed.
type publicKey struct {
	id        string
	algorithm string // of its tokens: RS256, ES256 or EdDSA
	key       crypto.PublicKey
}

// parseKeys parses a set of keys. RFC 7517, section 5: a key that is not understood is left out. odd
// says of each of these what is wrong.
func parseKeys(b []byte) (keys []publicKey, odd []string, err error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, nil, err
	}
	if set.Keys == nil {
		return nil, nil, errors.New("the answer is not a set of keys")
	}
	for i, one := range set.Keys {
		var raw rawKey
		err := json.Unmarshal(one, &raw)
		var key publicKey
		if err == nil {
			key, err = raw.parse()
		}
		if err == nil {
			keys = append(keys, key)
			continue
		}
		name := fmt.Sprintf("key %d", i+1)
		var named struct{ KID string }
		if json.Unmarshal(one, &named) == nil && named.KID != "" {
			name = fmt.Sprintf("kid %q", named.KID)
		}
		odd = append(odd, fmt.Sprintf("%s: %v", name, err))
	}
	return keys, odd, nil
}

// A rawKey has the parameters of a key that are looked at. The others have no meaning here.
type rawKey struct {
	KTY, KID, Use, Alg, Crv string
	Ops                     *[]string `json:"key_ops"`
	N, E, X, Y              number
	X5C                     [][]byte // of certificates, by base64 with padding
}

// A number is a string of base64 for URLs, without padding.
type number []byte

func (n *number) UnmarshalText(text []byte) (err error) {
	*n, err = base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err
}

// minRSA is the least number of bits of an RSA key: RFC 7518, section 3.3.
const minRSA = 2048

// parse returns a key, or what is wrong with it.
func (k *rawKey) parse() (key publicKey, err error) {
	key.id = k.KID
	switch {
	case k.Use != "" && k.Use != "sig":
		return key, fmt.Errorf("its use is %q", k.Use)
	case k.Ops != nil && !slices.Contains(*k.Ops, "verify"):
		return key, fmt.Errorf("its key_ops are %q", *k.Ops)
	}
	switch k.KTY {
	case "RSA":
		key.algorithm = "RS256"
		key.key, err = k.rsa()
	case "EC":
		key.algorithm = "ES256"
		key.key, err = k.ec()
	case "OKP":
		key.algorithm = "EdDSA"
		key.key, err = k.ed25519()
	default:
		err = fmt.Errorf("its kty is %q", k.KTY)
	}
	switch {
	case err != nil:
		return key, err
	case k.Alg != "" && k.Alg != key.algorithm:
		return key, fmt.Errorf("its alg is %q", k.Alg)
	}
	return key, k.checkChain(key.key)
}

func (k *rawKey) rsa() (crypto.PublicKey, error) {
	n, e := new(big.Int).SetBytes(k.N), new(big.Int).SetBytes(k.E)
	switch {
	case len(k.N) == 0 || len(k.E) == 0:
		return nil, errors.New("it has no n or no e")
	case n.BitLen() < minRSA:
		return nil, fmt.Errorf("its n has %d bits, want at least %d", n.BitLen(), minRSA)
	case n.Bit(0) == 0 || e.Bit(0) == 0 || e.BitLen() < 2 || e.BitLen() > 31:
		return nil, errors.New("its n or e cannot be one of RSA")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (k *rawKey) ec() (crypto.PublicKey, error) {
	if k.Crv != "P-256" {
		return nil, fmt.Errorf("its crv is %q", k.Crv)
	}
	if len(k.X) != 32 || len(k.Y) != 32 {
		return nil, errors.New("its x or y has not 32 bytes")
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, k.X, k.Y))
}

func (k *rawKey) ed25519() (crypto.PublicKey, error) {
	switch {
	case k.Crv != "Ed25519":
		return nil, fmt.Errorf("its crv is %q", k.Crv)
	case len(k.X) != ed25519.PublicKeySize:
		return nil, fmt.Errorf("its x has not %d bytes", ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(k.X), nil
}

// checkChain checks the certificates that a key may have: the first one is of the key.
func (k *rawKey) checkChain(key crypto.PublicKey) error {
	for i, der := range k.X5C {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("its x5c: %w", err)
		}
		of, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if i == 0 && !(ok && of.Equal(key)) {
			return errors.New("its x5c is of another key")
		}
	}
	return nil
}
