// Package trust has the certificates of a node, which are files that may change while it runs.
package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Files are the names of files in PEM: a certificate with its chain, its private key, and the
// certificates of those who may sign certificates of others. CA is empty where there are no others.
type Files struct{ Cert, Key, CA string }

// interval is the time between two looks at the files.
const interval = 2 * time.Second

// Certificates are what Files have. A connection has those that are valid when it begins.
type Certificates struct {
	files   Files
	log     *slog.Logger
	current atomic.Pointer[parsed]

	mu     sync.Mutex // of Reload
	read   [3][]byte  // what the files had when they were last parsed
	warned string
}

type parsed struct {
	cert tls.Certificate
	cas  *x509.CertPool
}

// Open reads the files. It reads them again until ctx is done, and goes on with what was valid last
// while they are not. A warning says why.
func Open(ctx context.Context, files Files, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: files, log: log}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.Reload()
			case <-ctx.Done():
				return
			}
		}
	}()
	return c, nil
}

// Reload reads the files now. It may be called concurrently. A nil *Certificates has no files.
func (c *Certificates) Reload() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := c.load()
	switch {
	case err != nil && err.Error() != c.warned:
		c.warned = err.Error()
		c.log.Warn("gateway: certificates stay as they were", "err", err)
	case err == nil && changed:
		c.warned = ""
		c.log.Info("gateway: certificates were read again", "what", c.files.Cert)
	}
}

// load reads the files, and parses them if they have changed.
func (c *Certificates) load() (changed bool, err error) {
	var read [3][]byte
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		if name == "" {
			continue
		}
		if read[i], err = os.ReadFile(name); err != nil {
			return false, err
		}
	}
	if slices.EqualFunc(read[:], c.read[:], bytes.Equal) {
		return false, nil
	}
	next := new(parsed)
	if next.cert, err = tls.X509KeyPair(read[0], read[1]); err != nil {
		return false, fmt.Errorf("%s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	if c.files.CA != "" {
		next.cas = x509.NewCertPool()
		if !next.cas.AppendCertsFromPEM(read[2]) {
			return false, fmt.Errorf("%s: no certificate", c.files.CA)
		}
	}
	c.read = read
	c.current.Store(next)
	return true, nil
}

// Get is for tls.Config.GetCertificate.
func (c *Certificates) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &c.current.Load().cert, nil
}

// Mutual returns a configuration for both sides of connections between members. A peer must have a
// certificate that one of the CAs has signed, for one of the hosts.
func (c *Certificates) Mutual(hosts []string) *tls.Config {
	server := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.Get, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error { return c.verify(s, x509.ExtKeyUsageClientAuth, hosts) }}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.Get(nil)
		},
		// VerifyConnection does it, because RootCAs cannot change.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return c.verify(s, x509.ExtKeyUsageServerAuth, hosts) },
	}
}

// verify checks the certificate of a peer, by the CAs that are valid now.
func (c *Certificates) verify(s tls.ConnectionState, usage x509.ExtKeyUsage, hosts []string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the member has no certificate")
	}
	leaf, chain := s.PeerCertificates[0], x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		chain.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.current.Load().cas, Intermediates: chain,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	if err == nil && !slices.ContainsFunc(hosts, func(host string) bool { return leaf.VerifyHostname(host) == nil }) {
		err = fmt.Errorf("it is for none of %s", strings.Join(hosts, ", "))
	}
	if err != nil {
		return fmt.Errorf("the member's certificate, %s for %s: %w", leaf.Subject, namesOf(leaf), err)
	}
	return nil
}

// Check reads files, and reports until when the certificate is valid and for which hosts it is. It fails
// if that is not so now, if it is for none of hosts, or if it is not signed for each usage by one of the
// CAs; without a file of CAs that is not looked at.
func Check(files Files, hosts []string, usages ...x509.ExtKeyUsage) (until time.Time, names string, err error) {
	c := &Certificates{files: files}
	if _, err := c.load(); err != nil {
		return until, "", err
	}
	now := c.current.Load()
	var chain []*x509.Certificate
	for _, der := range now.cert.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return until, "", err
		}
		chain = append(chain, one)
	}
	leaf := chain[0]
	until, names = leaf.NotAfter, namesOf(leaf)
	switch {
	case time.Now().Before(leaf.NotBefore):
		return until, names, fmt.Errorf("it is not valid before %s", leaf.NotBefore.Format(time.DateTime))
	case time.Now().After(until):
		return until, names, fmt.Errorf("it has expired on %s", until.Format(time.DateTime))
	case len(hosts) > 0 && !slices.ContainsFunc(hosts, func(host string) bool { return leaf.VerifyHostname(host) == nil }):
		return until, names, fmt.Errorf("it is for %s, and for none of %s", names, strings.Join(hosts, ", "))
	case now.cas == nil:
		return until, names, nil
	}
	for _, usage := range usages {
		if err := c.verify(tls.ConnectionState{PeerCertificates: chain}, usage, hosts); err != nil {
			return until, names, err
		}
	}
	return until, names, nil
}

// namesOf returns the hosts that a certificate is for.
func namesOf(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return strings.Join(names, ", ")
}

// IsLoopback reports whether an address, host:port, is one that other machines cannot reach: a
// loopback address, or localhost.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
