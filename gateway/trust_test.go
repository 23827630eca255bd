package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// trusting gives a member a certificate, in a folder.
func (c *NodeConfig) trusting(t testing.TB, a *authority.Authority, dir, name, host string, valid time.Duration) {
	t.Helper()
	c.ClusterCert, c.ClusterKey, c.ClusterCA = a.Write(t, dir, name, host, valid)
}

// awaitRoutes waits until a node has its routes.
func awaitRoutes(t *testing.T, nodes ...*Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, n := range nodes {
		n.WaitRoutes(ctx)
	}
	must(t, ctx.Err())
}

// Members whose certificates one authority has signed form a cluster. One of another authority, an
// expired one, one for another host, and none are refused, and the log names them.
func TestClusterCertificates(t *testing.T) {
	ours, other := authority.New(t, "ours"), authority.New(t, "theirs")
	addrs := freeport.Addrs(t, 7)
	members := addrs[:3]
	var log lockedBuffer
	start := func(i int, name string, give func(*NodeConfig)) *Node {
		c := NodeConfig{Name: name, Store: t.TempDir(), Cluster: addrs[i], Routes: slices.Clone(members)}
		if i < len(members) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}
		give(&c)
		return newNode(t, c)
	}
	var nodes []*Node
	for i := range members {
		name := fmt.Sprint("n", i)
		nodes = append(nodes, start(i, name, func(c *NodeConfig) { c.trusting(t, ours, t.TempDir(), name, "127.0.0.1", time.Hour) }))
	}
	awaitRoutes(t, nodes...)
	if strings.Contains(log.text(), unverifiedRoutes) {
		t.Error("the log says that routes are not verified")
	}
	for i, c := range []struct {
		name, want string
		give       func(*NodeConfig)
	}{
		{"stranger", "unknown authority", func(c *NodeConfig) {
			c.trusting(t, other, t.TempDir(), "stranger", "127.0.0.1", time.Hour)
			c.ClusterCA = authority.Put(t, t.TempDir(), "ca.pem", ours.PEM)
		}},
		{"late", "expired", func(c *NodeConfig) { c.trusting(t, ours, t.TempDir(), "late", "127.0.0.1", -time.Minute) }},
		{"elsewhere", "it is for none of 127.0.0.1", func(c *NodeConfig) {
			c.trusting(t, ours, t.TempDir(), "elsewhere", "c.example", time.Hour)
		}},
		{"", "TLS route handshake error: tls: first record does not look like a TLS handshake", func(*NodeConfig) {}},
	} {
		intruder := start(3+i, "x"+strconv.Itoa(i), c.give)
		until(t, "the log names "+c.name, func() bool {
			for line := range strings.Lines(log.text()) {
				if strings.Contains(line, c.want) && strings.Contains(line, "CN="+c.name) == (c.name != "") {
					return true
				}
			}
			return false
		})
		if n := intruder.Server.NumRoutes(); n != 0 {
			t.Errorf("%s has %d routes", c.name, n)
		}
		intruder.Close()
	}
	// A member that speaks TLS and has no certificate does not start. So this is none.
	conn := must1(tls.Dial("tcp", members[0], &tls.Config{InsecureSkipVerify: true}))
	defer conn.Close()
	until(t, "the log names one without a certificate", func() bool {
		return strings.Contains(log.text(), "TLS route handshake error: tls: client didn't provide a certificate")
	})
	for _, n := range nodes {
		if got := n.Server.NumRoutes(); got != 2 {
			t.Errorf("%d routes", got)
		}
	}
}

// A cluster that other machines could reach needs certificates, or a word that they cannot.
func TestClusterInsecure(t *testing.T) {
	cert, key, ca := authority.New(t, "ours").Write(t, t.TempDir(), "n", "127.0.0.1", time.Hour)
	address := freeAddr(t)
	far := "192.0.2.1:6222"
	for name, c := range map[string]NodeConfig{
		"ClusterCert, ": {Cluster: "0.0.0.0:6222", Routes: []string{address}},
		far:             {Cluster: address, Routes: []string{address, far}},
		"ClusterKey":    {Cluster: address, Routes: []string{address}, ClusterCert: cert, ClusterCA: ca},
		"Insecure": {Cluster: address, Routes: []string{address}, ClusterCert: cert, ClusterKey: key, ClusterCA: ca,
			ClusterInsecure: true},
		"/no/such": {Cluster: address, Routes: []string{address}, ClusterCert: cert, ClusterKey: key, ClusterCA: "/no/such"},
	} {
		c.Name, c.Store, c.Logger = "n", t.TempDir(), quiet
		_, err := Start(c)
		if err == nil || !strings.Contains(err.Error(), name) || name != "/no/such" && !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	newNode(t, NodeConfig{Store: t.TempDir(), Cluster: address, Routes: []string{address, far}, ClusterInsecure: true})
}

// Clients of NATS need the password and trust the certificate, and may still do only what they may.
func TestListenPassword(t *testing.T) {
	ours := authority.New(t, "ours")
	cert, key, ca := ours.Write(t, t.TempDir(), "nats", "127.0.0.1", time.Hour)
	address := freeAddr(t)
	for _, cluster := range []string{"", freeAddr(t)} {
		c := NodeConfig{Store: t.TempDir(), Listen: address, ListenPassword: "a password of 24 letters",
			ListenCert: cert, ListenKey: key, Cluster: cluster}
		if cluster != "" {
			c.Routes = []string{cluster}
		}
		node := newNode(t, c)
		for name, with := range map[string][]nats.Option{
			"no TLS":           {nats.UserInfo("client", c.ListenPassword)},
			"no password":      {nats.RootCAs(ca)},
			"another password": {nats.RootCAs(ca), nats.UserInfo("client", "x")},
		} {
			if conn, err := nats.Connect("nats://"+address, with...); err == nil {
				t.Errorf("%s: connected", name)
				conn.Close()
			}
		}
		denied := make(chan error, 1)
		conn, err := nats.Connect("nats://"+address, nats.RootCAs(ca), nats.UserInfo("client", c.ListenPassword),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
		must(t, err)
		must(t, conn.Publish(event.StoredPrefix+event.ControlTopic, nil))
		if err := <-denied; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Error(err)
		}
		conn.Close()
		node.Close()
	}
}

// A member that does not run yet is no error.
func TestAbsentMember(t *testing.T) {
	addrs := freeport.Addrs(t, 2)
	var log lockedBuffer
	newNode(t, NodeConfig{Store: t.TempDir(), Cluster: addrs[0], Routes: addrs, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	until(t, "the log says it", func() bool { return strings.Contains(log.text(), absentMember) })
	if text := log.text(); strings.Contains(text, "level=ERROR") {
		t.Error(text)
	}
}

// All certificates of a cluster are replaced, also that of the authority, while it stores events and
// members start again. Each event that was acknowledged comes once, in order.
func TestCertificateRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	old, next := authority.New(t, "old"), authority.New(t, "next")
	addrs := freeport.Addrs(t, 3)
	configs, nodes := make([]NodeConfig, 3), make([]*Node, 3)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range nodes {
		configs[i] = NodeConfig{Name: fmt.Sprint("n", i), Store: t.TempDir(), Cluster: addrs[i], Routes: addrs}
		configs[i].trusting(t, old, dirs[i], configs[i].Name, "127.0.0.1", time.Hour)
		nodes[i] = newNode(t, configs[i])
	}
	publisher := newSiteOn(t, nodes[0], Config{Stream: StreamConfig{Replicas: 3}})
	reading := newSiteOn(t, nodes[2], Config{Stream: StreamConfig{Replicas: 3}})
	client, err := openWS(reading.url, "topic=a")
	must(t, err)
	defer client.close()
	ctx, stop := context.WithCancel(t.Context())
	var stored, seen atomic.Int64
	go func() { // until the client is closed
		for {
			m, err := client.next()
			if err != nil {
				return
			}
			if want := seen.Load(); m.Data != strconv.FormatInt(want, 10) {
				t.Errorf("got %+v, want %d", m, want)
				return
			}
			seen.Add(1)
		}
	}()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for ctx.Err() == nil {
			data := strconv.FormatInt(stored.Load(), 10)
			if _, err := publisher.Publish(ctx, "a", []byte(data), data); err == nil {
				stored.Add(1)
			}
		}
	})
	restart := func() { // the member that has no gateway, so that its routes are made again
		nodes[1].Close()
		nodes[1] = newNode(t, configs[1])
		awaitRoutes(t, nodes...)
		before := stored.Load()
		until(t, "publishing goes on", func() bool { return stored.Load() > before+100 })
	}
	restart()
	both := slices.Concat(old.PEM, next.PEM)
	for _, change := range []func(i int){
		func(i int) { authority.Put(t, dirs[i], "ca.pem", both) },
		func(i int) {
			cert, key := next.Sign(t, configs[i].Name, "127.0.0.1", time.Hour)
			authority.Put(t, dirs[i], "cert.pem", cert)
			authority.Put(t, dirs[i], "key.pem", key)
		},
		func(i int) { authority.Put(t, dirs[i], "ca.pem", next.PEM) },
	} {
		for i, n := range nodes {
			change(i)
			n.Reload()
		}
		restart()
	}
	stop()
	publishing.Wait()
	until(t, "all that was stored has come", func() bool { return seen.Load() >= stored.Load() })
	t.Logf("%d events", stored.Load())
}
