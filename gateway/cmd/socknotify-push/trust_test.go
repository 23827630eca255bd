package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
)

// The debug address asks for its token: as a bearer's, as of Prometheus, or as a password, as of a
// browser.
func TestDebugToken(t *testing.T) {
	const token = "a token of 24 characters"
	file := authority.Put(t, t.TempDir(), "token", []byte(token+"\n"))
	_, debug, _ := start(t, "--store", t.TempDir(), "--debug-token", file)
	until(t, "the debug address is served", func() bool {
		code, _ := ask(t, "GET", debug+"/", "")
		return code == http.StatusUnauthorized
	})
	for name, c := range map[string]struct {
		set  func(*http.Request)
		want int
	}{
		"none":     {func(*http.Request) {}, http.StatusUnauthorized},
		"another":  {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x"+token) }, http.StatusUnauthorized},
		"a user":   {func(r *http.Request) { r.SetBasicAuth(token, "") }, http.StatusUnauthorized},
		"bearer":   {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, http.StatusOK},
		"password": {func(r *http.Request) { r.SetBasicAuth("any", token) }, http.StatusOK},
	} {
		for _, path := range []string{"/", "/status", "/metrics", "/debug/socknotify/"} {
			r := must1(http.NewRequest("GET", debug+path, nil))
			c.set(r)
			answer := must1(caller.Do(r))
			answer.Body.Close()
			if answer.StatusCode != c.want {
				t.Errorf("%s: %s: %s", name, path, answer.Status)
			}
			if asks := answer.Header.Get("WWW-Authenticate") != ""; asks != (c.want != http.StatusOK) {
				t.Errorf("%s: %s: asks for a password: %t", name, path, asks)
			}
		}
	}
}

// issuer returns who has signed the certificate that a server has now.
func issuer(t *testing.T, url string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// A certificate for clients that has changed is used without a restart.
func TestCertificateChanges(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := authority.New(t, "old").Write(t, dir, "push", "127.0.0.1", time.Hour)
	url, _, _ := start(t, "--store", t.TempDir(), "--cert", cert, "--key", key)
	next, end := events(t, url, "topic=a", "")
	defer end()
	if got := issuer(t, url); got != "old" {
		t.Fatalf("signed by %s", got)
	}
	authority.New(t, "next").Write(t, dir, "push", "127.0.0.1", time.Hour)
	until(t, "the new certificate is used", func() bool { return issuer(t, url) == "next" })
	if code, body := ask(t, "POST", url+"/publish?topic=a", "hello"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if got := next("data: "); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// A NATS that runs elsewhere may ask for certificates.
func TestNATSCertificates(t *testing.T) {
	ours := authority.New(t, "ours")
	dir := t.TempDir()
	cert, key, ca := ours.Write(t, dir, "nats", "127.0.0.1", time.Hour)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ours.PEM)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true, TLSTimeout: 10, TLS: true, TLSVerify: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{must1(tls.LoadX509KeyPair(cert, key))},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}})
	must(t, err)
	go s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	nats := "tls://127.0.0.1:" + portOf(s.Addr())
	for _, flags := range []string{"", " --nats-ca " + ca, " --nats-cert " + cert + " --nats-key " + key} {
		args := strings.Fields("--addr 127.0.0.1:0 --nats " + nats + flags)
		if status := command(t.Context(), args, os.Stdout, new(strings.Builder)); status != 1 {
			t.Errorf("%s: status %d", flags, status)
		}
	}
	all := []string{"--nats", nats, "--nats-ca", ca, "--nats-cert", cert, "--nats-key", key}
	url, _, _ := start(t, all...)
	if code, body := ask(t, "POST", url+"/publish?topic=a", "hello"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if status := command(t.Context(), append(append([]string{"backup"}, all...), dir+"/backup"), os.Stdout, os.Stderr); status != 0 {
		t.Errorf("backup: status %d", status)
	}
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}
