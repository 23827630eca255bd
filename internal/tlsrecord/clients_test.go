package tlsrecord

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// rsaConfig is a server's configuration with a certificate for RSA.
func rsaConfig(t *testing.T) *tls.Config {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	from := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, from, from, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// listen serves connections one after another, each of which must be taken over.
func listen(t *testing.T, config *tls.Config, serve func(c *Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			c, err := shake(conn, config)
			if err != nil {
				t.Error(err)
				conn.Close()
				continue
			}
			serve(c)
		}
	}()
	return l.Addr().String()
}

// OpenSSL's client exchanges lines over each suite, and changes keys.
func TestOpenSSL(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl")
	}
	lines := func(c *Conn) {
		defer c.Close()
		in := bufio.NewScanner(c)
		for in.Scan() {
			fmt.Fprintf(c, "got %s\n", in.Text())
		}
		if in.Err() != nil {
			t.Error(in.Err())
		}
	}
	ecdsa, rsa := listen(t, base, lines), listen(t, rsaConfig(t), lines)
	for _, k := range []struct{ addr, args string }{
		{ecdsa, "-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256"},
		{rsa, "-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384"},
		{ecdsa, "-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256"},
		{ecdsa, "-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384"},
		{rsa, "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256"},
		{rsa, "-tls1_2 -cipher ECDHE-RSA-AES256-GCM-SHA384"},
	} {
		t.Run(k.args, func(t *testing.T) {
			cmd := exec.Command(openssl, append([]string{"s_client", "-connect", k.addr}, strings.Fields(k.args)...)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout // where it tells of a KeyUpdate
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			say := func(line, want string) {
				io.WriteString(in, line+"\n")
				for {
					got, err := r.ReadString('\n')
					if err != nil {
						t.Fatalf("%q: %v", line, err)
					}
					if strings.TrimSpace(got) == want {
						return
					}
				}
			}
			say("one", "got one")
			if strings.Contains(k.args, "tls1_3") { // commands of s_client: KeyUpdate, and with a request
				say("k", "KEYUPDATE")
				say("two", "got two")
				say("K", "KEYUPDATE")
			}
			say("three", "got three")
			in.Close()
			rest, _ := io.ReadAll(r)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, rest)
			}
		})
	}
}

// curl gets an answer of several records.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	addr := listen(t, base, func(c *Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	})
	for _, version := range []string{"--tlsv1.3", "--tls-max=1.2"} {
		args := strings.Split(version, "=")
		got, err := exec.Command(curl, append(args, "-sSk", "https://"+addr)...).Output()
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %v", version, len(got), err)
		}
	}
}
