package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// servedHTTP starts serve http. It returns the addresses that it logs, the live page's last, and a function that ends
// it and returns its output.
func servedHTTP(t *testing.T, args ...string) (url, page string, stop func() string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"serve", "http", "--addr", "127.0.0.1:0", "--debug-addr", "127.0.0.1:0"}, args...), &out, w)
		w.Close()
	}()
	var text strings.Builder
	urls := regexp.MustCompile(`https?://\S+/`)
	var found []string
	for buf := make([]byte, 256); len(found) < 2; {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.Write(buf[:n])
		found = urls.FindAllString(text.String(), -1)
	}
	go io.Copy(io.Discard, r)
	for _, u := range found {
		if strings.HasSuffix(u, debugPath) {
			page = u
		} else {
			url = u
		}
	}
	return url, page, func() string {
		interrupt()
		if status := <-done; status != 0 {
			t.Errorf("status %d", status)
		}
		return out.String()
	}
}

// fetch returns the body of a response with status 200.
func fetch(t *testing.T, c *http.Client, method, url, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %s", method, url, answer.Status, err, text)
	}
	return string(text)
}

// newClient returns a client with its own connections that trusts roots, or any certificate.
func newClient(t *testing.T, roots *x509.CertPool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, InsecureSkipVerify: roots == nil}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

func TestServeHTTP(t *testing.T) {
	backendtest.Need(t)
	dir := t.TempDir()
	certFile, keyFile, roots := writeCertificate(t, dir, "localhost", "127.0.0.1")
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, c := range []struct {
			scheme string
			roots  *x509.CertPool
			args   []string
		}{
			{"http:", nil, nil},
			{"https:", nil, []string{"--tls"}},
			{"https:", roots, []string{"--cert", certFile, "--key", keyFile}},
		} {
			t.Run(fmt.Sprint(c.args), func(t *testing.T) {
				url, page, stop := servedHTTP(t, append(c.args, "--backend", backend, "--linger", "0")...)
				if !strings.HasPrefix(url, c.scheme) {
					t.Error(url)
				}
				idle, other := newClient(t, c.roots), newClient(t, c.roots)
				if text := fetch(t, idle, "GET", url, ""); !strings.Contains(text, "/echo") {
					t.Errorf("the page: %s", text)
				}
				if text := fetch(t, idle, "POST", url+"echo", "back"); text != "back" {
					t.Errorf("echoed %q", text)
				}
				await.Until(t, "the idle connection is parked", func() bool {
					return strings.Contains(fetch(t, other, "GET", url+"stats", ""), "open 2\nparked 1\n")
				})
				if text := fetch(t, http.DefaultClient, "GET", page+"api/registrations?port=http", ""); !strings.Contains(text, `"state"`) {
					t.Errorf("the live page: %s", text)
				}
				http.DefaultClient.CloseIdleConnections()
				if text := stop(); !strings.HasPrefix(text, "connections 2 ") || !strings.Contains(text, "bytes 4 ") {
					t.Errorf("it printed %q", text)
				}
			})
		}
	})
}

// writeCertificate writes a certificate and its key to files.
func writeCertificate(t *testing.T, dir string, hosts ...string) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	cert, roots, err := selfcert.New(24*time.Hour, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := selfcert.PEM(cert)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, text := range map[string][]byte{certFile: certificate, keyFile: key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, roots
}

func TestServeHTTPTooLarge(t *testing.T) {
	backendtest.Need(t)
	url, _, stop := servedHTTP(t)
	c := newClient(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"echo", bytes.NewReader(make([]byte, maxEcho+1)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(answer.Status)
	}
	stop()
}

func TestServeHTTPUsage(t *testing.T) {
	backendtest.Need(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--cert", "x"}, 2, "--cert and --key go together"},
		{[]string{"--key", "x"}, 2, "--cert and --key go together"},
		{[]string{"--cert", "/nonexistent", "--key", "/nonexistent"}, 1, "certificate"},
		{[]string{"--linger", "-1s"}, 2, "--linger -1s"},
		{[]string{"--idle", "-1s"}, 2, "--idle -1s"},
		{[]string{"--addr", "nonsense"}, 2, "--addr nonsense"},
		{[]string{"--backend", "nonsense"}, 2, "nonsense"},
		{[]string{"--debug-addr", "192.0.2.1:0"}, 2, "loopback"},
		{[]string{"--addr", "192.0.2.1:9"}, 1, "bind"},
		{[]string{"more"}, 2, "more"},
	} {
		status, _, errs := sh(t, append([]string{"serve", "http"}, c.args...)...)
		if status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, errs)
		}
	}
}
