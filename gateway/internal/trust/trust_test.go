package trust

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// handshake connects two members, and returns the errors of the one that dials and the other one.
func handshake(t *testing.T, client, server *tls.Config) (dialed, accepted error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer a.Close()
	b, err := ln.Accept()
	must(t, err)
	defer b.Close()
	a.SetDeadline(time.Now().Add(time.Minute))
	b.SetDeadline(time.Now().Add(time.Minute))
	var both sync.WaitGroup
	both.Go(func() {
		s := tls.Server(b, server)
		if accepted = s.Handshake(); accepted == nil {
			_, accepted = s.Write([]byte{1})
		}
		b.Close()
	})
	c := tls.Client(a, client)
	if dialed = c.Handshake(); dialed == nil {
		_, dialed = c.Read(make([]byte, 1)) // the other side may refuse the certificate only now
	}
	a.Close()
	both.Wait()
	return dialed, accepted
}

// open opens certificates of files that are there.
func open(t *testing.T, f Files) *Certificates {
	t.Helper()
	c, err := Open(t.Context(), f, slog.New(slog.DiscardHandler))
	must(t, err)
	return c
}

// member returns the certificates of a member in a folder of its own.
func member(t *testing.T, a *authority.Authority, name, host string, valid time.Duration) (*Certificates, Files) {
	t.Helper()
	cert, key, ca := a.Write(t, t.TempDir(), name, host, valid)
	f := Files{cert, key, ca}
	return open(t, f), f
}

// Members trust each other by certificates of one authority for the hosts of members, on both sides.
func TestMutual(t *testing.T) {
	ours, other := authority.New(t, "ours"), authority.New(t, "others")
	hosts := []string{"127.0.0.1", "b.example"}
	a, _ := member(t, ours, "a", "127.0.0.1", time.Hour)
	b, _ := member(t, ours, "b", "b.example", time.Hour)
	if dialed, accepted := handshake(t, a.Mutual(hosts), b.Mutual(hosts)); dialed != nil || accepted != nil {
		t.Fatalf("members: %v, %v", dialed, accepted)
	}
	cert, key, _ := other.Write(t, t.TempDir(), "stranger", "127.0.0.1", time.Hour)
	stranger := open(t, Files{cert, key, authority.Put(t, t.TempDir(), "ca.pem", slices.Concat(ours.PEM, other.PEM))})
	late, _ := member(t, ours, "late", "127.0.0.1", -time.Minute)
	elsewhere, _ := member(t, ours, "elsewhere", "c.example", time.Hour)
	for _, c := range []struct {
		peer *Certificates
		want string // in the error, besides the name
	}{
		{stranger, "unknown authority"},
		{late, "expired"},
		{elsewhere, "c.example"},
	} {
		name := c.peer.current.Load().cert.Leaf.Subject.String()
		named := func(err error) bool {
			return err != nil && strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), name)
		}
		everywhere := []string{"127.0.0.1", "b.example", "c.example"}
		if _, err := handshake(t, c.peer.Mutual(everywhere), a.Mutual(hosts)); !named(err) {
			t.Errorf("%s dials: %v", name, err)
		}
		if err, _ := handshake(t, a.Mutual(hosts), c.peer.Mutual(everywhere)); !named(err) {
			t.Errorf("%s is dialed: %v", name, err)
		}
	}
	none := &tls.Config{InsecureSkipVerify: true}
	if _, err := handshake(t, none, a.Mutual(hosts)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a certificate: %v", err)
	}
}

// Files that change are read again, without a word from outside. While they do not go together, what
// was valid stays, and one warning says so.
func TestReload(t *testing.T) {
	old, new := authority.New(t, "old"), authority.New(t, "new")
	dir := t.TempDir()
	cert, key, ca := old.Write(t, dir, "a", "127.0.0.1", time.Hour)
	var log bytes.Buffer
	c, err := Open(t.Context(), Files{cert, key, ca}, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	hosts := []string{"127.0.0.1"}
	running := c.Mutual(hosts) // as a server that runs has it
	before, _ := member(t, old, "b", "127.0.0.1", time.Hour)
	after, _ := member(t, new, "b", "127.0.0.1", time.Hour)
	trusts := func(other *Certificates) bool {
		_, err := handshake(t, other.Mutual(hosts), running)
		return err == nil
	}
	if !trusts(before) || trusts(after) {
		t.Fatal("the old certificates are not those that count")
	}
	nextCert, nextKey := new.Sign(t, "a", "127.0.0.1", time.Hour)
	authority.Put(t, dir, "cert.pem", nextCert)
	c.Reload()
	c.Reload()
	authority.Put(t, dir, "ca.pem", nil)
	authority.Put(t, dir, "key.pem", nextKey)
	c.Reload()
	must(t, os.Remove(filepath.Join(dir, "ca.pem")))
	c.Reload()
	if !trusts(before) {
		t.Error("files that are not valid count")
	}
	c.mu.Lock()
	if n := strings.Count(log.String(), "stay as they were"); n != 3 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
	c.mu.Unlock()
	authority.Put(t, dir, "ca.pem", new.PEM)
	for deadline := time.Now().Add(time.Minute); !trusts(after); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new files are not read")
		}
	}
	if trusts(before) {
		t.Error("the old authority counts")
	}
}

// What cannot be used at the start is an error that names the file.
func TestOpen(t *testing.T) {
	cert, key, ca := authority.New(t, "ours").Write(t, t.TempDir(), "a", "127.0.0.1", time.Hour)
	for _, f := range []Files{{"/no/such", key, ca}, {cert, ca, ca}, {cert, key, key}} {
		if _, err := Open(t.Context(), f, slog.New(slog.DiscardHandler)); err == nil ||
			!slices.ContainsFunc([]string{f.Cert, f.CA}, func(name string) bool { return strings.Contains(err.Error(), name) }) {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// Other machines reach no loopback address.
func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "127.1.2.3:1": true, "[::1]:1": true,
		"[::ffff:127.0.0.1]:1": true, "localhost:1": true, "LOCALHOST:1": true, ":1": false, "0.0.0.0:1": false,
		"[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1": false, "": false} {
		if IsLoopback(address) != want {
			t.Errorf("%s: want %t", address, want)
		}
	}
}
