package bogo

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/socknotify/socknotify/park"
)

// The runner gives a shim flags, and takes the exit code 89 for "this is not implemented".
const unimplemented = 89

// A shim is a server that the runner starts for each of its tests. With taken it is one whose
// records this library makes, and otherwise one of crypto/tls.
type shim struct {
	taken  bool
	log    string // gets a byte for each connection that was taken over from crypto/tls
	flags  *flag.FlagSet
	config *tls.Config

	port, id                     string
	ipv6, server                 bool
	resumptions                  int
	writesFirst, shutsDown       bool
	requireCert, verifyPeer      bool
	noTLS                        [4]bool // TLS 1.0 to 1.3
	key, cert                    string
	selectALPN, expectALPN       string
	declineALPN, rejectALPN      bool
	expectVersion, expectCurve   int
	expectName                   string
	expectMiss, expectHRR, noHRR bool
	exported                     int
	exportLabel, exportContext   string
	useContext                   bool
	echConfigs, echKeys, echUse  list
	expectECH                    bool
}

// A list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// runShim is the main function of a shim.
func runShim(taken bool, log string, args []string) {
	s := &shim{taken: taken, log: log, config: &tls.Config{MinVersion: tls.VersionTLS10}}
	s.flags = flag.NewFlagSet("shim", flag.ContinueOnError)
	s.define()
	if err := s.flags.Parse(args); err != nil || !s.server {
		os.Exit(unimplemented)
	}
	if err := s.configure(); err != nil {
		fail(err)
	}
	for i := range s.resumptions + 1 {
		if err := s.exchange(i); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (s *shim) define() {
	f := s.flags
	f.SetOutput(io.Discard)
	f.BoolFunc("is-handshaker-supported", "", func(string) error {
		fmt.Println("No")
		os.Exit(0)
		return nil
	})
	f.StringVar(&s.port, "port", "", "")
	f.StringVar(&s.id, "shim-id", "", "")
	f.BoolVar(&s.ipv6, "ipv6", false, "")
	f.BoolVar(&s.server, "server", false, "")
	f.IntVar(&s.resumptions, "resume-count", 0, "")
	f.BoolVar(&s.writesFirst, "shim-writes-first", false, "")
	f.BoolVar(&s.shutsDown, "shim-shuts-down", false, "")
	f.Bool("check-close-notify", false, "") // Read does, also without it
	f.BoolVar(&s.config.SessionTicketsDisabled, "no-ticket", false, "")
	f.BoolVar(&s.requireCert, "require-any-client-certificate", false, "")
	f.BoolVar(&s.verifyPeer, "verify-peer", false, "")
	for i, name := range []string{"no-tls1", "no-tls11", "no-tls12", "no-tls13"} {
		f.BoolVar(&s.noTLS[i], name, false, "")
	}
	version := func(to *uint16) func(string) error {
		return func(v string) error {
			n, err := strconv.ParseUint(v, 10, 16)
			*to = uint16(n)
			return err
		}
	}
	f.Func("min-version", "", version(&s.config.MinVersion))
	f.Func("max-version", "", version(&s.config.MaxVersion))
	f.Func("curves", "", func(v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		s.config.CurvePreferences = append(s.config.CurvePreferences, tls.CurveID(n))
		return err
	})
	f.StringVar(&s.key, "key-file", "", "")
	f.StringVar(&s.cert, "cert-file", "", "")
	f.String("trust-cert", "", "")
	f.StringVar(&s.selectALPN, "select-alpn", "", "")
	f.StringVar(&s.expectALPN, "expect-alpn", "", "")
	f.BoolVar(&s.declineALPN, "decline-alpn", false, "")
	f.BoolVar(&s.rejectALPN, "reject-alpn", false, "")
	f.IntVar(&s.expectVersion, "expect-version", 0, "")
	f.IntVar(&s.expectCurve, "expect-curve-id", 0, "")
	f.StringVar(&s.expectName, "expect-server-name", "", "")
	f.BoolVar(&s.expectMiss, "expect-session-miss", false, "")
	f.BoolVar(&s.expectHRR, "expect-hrr", false, "")
	f.BoolVar(&s.noHRR, "expect-no-hrr", false, "")
	f.IntVar(&s.exported, "export-keying-material", 0, "")
	f.StringVar(&s.exportLabel, "export-label", "", "")
	f.StringVar(&s.exportContext, "export-context", "", "")
	f.BoolVar(&s.useContext, "use-export-context", false, "")
	f.Var(&s.echConfigs, "ech-server-config", "")
	f.Var(&s.echKeys, "ech-server-key", "")
	f.Var(&s.echUse, "ech-is-retry-config", "")
	f.BoolVar(&s.expectECH, "expect-ech-accept", false, "")
}

func (s *shim) configure() error {
	c := s.config
	versions := []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13}
	for i := 0; i < len(versions) && s.noTLS[i]; i++ {
		c.MinVersion = max(c.MinVersion, versions[i]+1)
	}
	for i := len(versions) - 1; i > 0 && s.noTLS[i]; i-- {
		c.MaxVersion = versions[i] - 1
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		c.CipherSuites = append(c.CipherSuites, suite.ID)
	}
	switch {
	case s.requireCert:
		c.ClientAuth = tls.RequireAnyClientCert
	case s.verifyPeer:
		c.ClientAuth = tls.RequestClientCert
	}
	switch {
	case s.rejectALPN:
		c.NextProtos = []string{"not this one"}
	case s.selectALPN != "" && !s.declineALPN:
		c.NextProtos = []string{s.selectALPN}
	}
	if s.key != "" {
		cert, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return err
		}
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	for i, config := range s.echConfigs {
		var k tls.EncryptedClientHelloKey
		var err1, err2 error
		k.Config, err1 = base64.StdEncoding.DecodeString(config)
		k.PrivateKey, err2 = base64.StdEncoding.DecodeString(s.echKeys[i])
		k.SendAsRetry = s.echUse[i] == "1"
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		c.EncryptedClientHelloKeys = append(c.EncryptedClientHelloKeys, k)
	}
	return nil
}

// exchange serves one connection: it sends back each byte that it gets, inverted.
func (s *shim) exchange(i int) error {
	host := "127.0.0.1"
	if s.ipv6 {
		host = "::1"
	}
	below, err := net.Dial("tcp", net.JoinHostPort(host, s.port))
	if err != nil {
		return err
	}
	defer below.Close()
	below.SetDeadline(time.Now().Add(time.Minute))
	id, err := strconv.ParseUint(s.id, 10, 64)
	if err != nil {
		return err
	}
	if _, err := below.Write(binary.LittleEndian.AppendUint64(nil, id)); err != nil {
		return err
	}
	var conn park.TLSConn = tls.Server(below, s.config)
	if s.taken {
		conn = park.TLSServer(below, s.config)
	}
	if err := s.serve(conn, i); err != nil {
		// The runner may be sending: a reset would take the alert from it.
		below.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, below)
		return err
	}
	return nil
}

func (s *shim) serve(conn park.TLSConn, i int) error {
	if err := conn.HandshakeContext(context.Background()); err != nil {
		return err
	}
	s.note(conn)
	if err := s.check(conn.ConnectionState()); err != nil {
		return err
	}
	if s.exported > 0 {
		var extra []byte
		if s.useContext {
			extra = append([]byte{}, s.exportContext...)
		}
		state := conn.ConnectionState()
		key, err := state.ExportKeyingMaterial(s.exportLabel, extra, s.exported)
		if err != nil {
			return err
		}
		if _, err := conn.Write(key); err != nil {
			return err
		}
	}
	if s.writesFirst && i == 0 {
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
	}
	if s.shutsDown {
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return ended(err)
	}
	for b := make([]byte, 500); ; {
		n, err := conn.Read(b)
		if n > 0 {
			for i := range n {
				b[i] ^= 0xff
			}
			if _, err := conn.Write(b[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return ended(err)
		}
	}
}

func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// note notes that the connection was taken over.
func (s *shim) note(conn park.TLSConn) {
	t, ok := conn.(interface{ Stock() *tls.Conn })
	if !ok || t.Stock() != nil {
		return
	}
	if f, err := os.OpenFile(s.log, os.O_APPEND|os.O_WRONLY, 0); err == nil {
		f.Write([]byte{'.'})
		f.Close()
	}
}

// check compares what was agreed upon with what the runner expects.
func (s *shim) check(state tls.ConnectionState) error {
	for _, c := range []struct {
		wrong bool
		what  string
	}{
		{s.expectALPN != "" && state.NegotiatedProtocol != s.expectALPN, "protocol"},
		{s.declineALPN && state.NegotiatedProtocol != "", "protocol"},
		{s.expectVersion != 0 && state.Version != uint16(s.expectVersion), "version"},
		{s.expectCurve != 0 && state.CurveID != tls.CurveID(s.expectCurve), "curve"},
		{s.expectName != "" && state.ServerName != s.expectName, "name"},
		{s.expectMiss && state.DidResume, "resumption"},
		{s.expectHRR && !state.HelloRetryRequest, "HelloRetryRequest"},
		{s.noHRR && state.HelloRetryRequest, "HelloRetryRequest"},
		{s.expectECH && !state.ECHAccepted, "ECH"},
	} {
		if c.wrong {
			return fmt.Errorf("unexpected %s: %+v", c.what, state)
		}
	}
	return nil
}
