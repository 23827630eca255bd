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

// A lineClient is a program that sends the lines of its input over TLS, and prints what it gets.
type lineClient struct {
	program string
	args    func(host, port, suite string) string
	// Input lines that make it change its own keys, and those of both sides; updated is what it
	// prints then, if anything.
	rekey, rekeyBoth, updated string
	// The arguments for a version and a suite.
	suites map[string]string
}

var lineClients = []lineClient{
	{
		"openssl",
		func(host, port, suite string) string { return "s_client -connect " + host + ":" + port + " " + suite },
		"k", "K", "KEYUPDATE",
		map[string]string{
			"1.3 ecdsa AES-128": "-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256",
			"1.3 rsa AES-256":   "-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384",
			"1.2 ecdsa AES-128": "-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256",
			"1.2 ecdsa AES-256": "-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384",
			"1.2 rsa AES-128":   "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256",
			"1.2 rsa AES-256":   "-tls1_2 -cipher ECDHE-RSA-AES256-GCM-SHA384",
		},
	},
	{
		"gnutls-cli",
		func(host, port, suite string) string {
			return "--no-ca-verification --inline-commands " + suite + " -p " + port + " " + host
		},
		"^rekey1^", "^rekey^", "",
		map[string]string{
			"1.3 ecdsa AES-128": "--priority NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM",
			"1.3 rsa AES-256":   "--priority NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-256-GCM",
			"1.2 ecdsa AES-128": "--priority NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-GCM:-KX-ALL:+ECDHE-ECDSA",
			"1.2 rsa AES-256":   "--priority NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-256-GCM:-KX-ALL:+ECDHE-RSA",
		},
	},
}

// The clients of OpenSSL and GnuTLS exchange lines over each suite, and change keys.
func TestLineClients(t *testing.T) {
	t.Parallel()
	lines := func(c *Conn) {
		defer c.Close()
		in := bufio.NewScanner(c)
		for in.Scan() {
			fmt.Fprintf(c, "got %s\n", in.Text())
		}
		if in.Err() != nil {
			t.Error(in.Err())
		}
		if c.ConnectionState().Version == tls.VersionTLS13 && c.pump.Records.in.seq > 2 {
			t.Errorf("%d records came under the same key", c.pump.Records.in.seq)
		}
	}
	addrs := map[string]string{"ecdsa": listen(t, base, lines), "rsa": listen(t, rsaConfig(t), lines)}
	for _, client := range lineClients {
		for name, args := range client.suites {
			t.Run(client.program+" "+name, func(t *testing.T) {
				host, port, _ := net.SplitHostPort(addrs[strings.Fields(name)[1]])
				client.exchange(t, client.args(host, port, args), strings.HasPrefix(name, "1.3"))
			})
		}
	}
}

func (k *lineClient) exchange(t *testing.T, args string, rekeys bool) {
	program, err := exec.LookPath(k.program)
	if err != nil {
		t.Skip("there is no " + k.program)
	}
	cmd := exec.Command(program, strings.Fields(args)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout // where OpenSSL reports a KeyUpdate
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	say := func(line, want string) {
		io.WriteString(in, line+"\n")
		for want != "" {
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
	if rekeys {
		say(k.rekey, k.updated)
		say("two", "got two")
		say(k.rekeyBoth, k.updated)
	}
	say("three", "got three")
	in.Close()
	rest, _ := io.ReadAll(r)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, rest)
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
