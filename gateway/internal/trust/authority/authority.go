// Package authority signs certificates in tests.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	PEM  []byte // its own certificate
	cert *x509.Certificate
	key  crypto.Signer
}

// New returns an authority.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	a := new(Authority)
	a.cert, a.PEM, a.key = sign(t, template, template, nil)
	return a
}

// Sign returns a certificate and its key, for a host and the time that is given, as PEM.
func (a *Authority) Sign(t testing.TB, name, host string, valid time.Duration) (cert, key []byte) {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	_, cert, signer := sign(t, template, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Write writes a certificate for a host, its key and the authority's own certificate to files of a
// folder, and returns their names.
func (a *Authority) Write(t testing.TB, dir, name, host string, valid time.Duration) (cert, key, ca string) {
	t.Helper()
	c, k := a.Sign(t, name, host, valid)
	return Put(t, dir, "cert.pem", c), Put(t, dir, "key.pem", k), Put(t, dir, "ca.pem", a.PEM)
}

// Put replaces a file as a whole, and returns its name.
func Put(t testing.TB, dir, name string, b []byte) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	return name
}

// sign signs a certificate with a key, or with its own if that is nil.
func sign(t testing.TB, template, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, []byte, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = serial, time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}
