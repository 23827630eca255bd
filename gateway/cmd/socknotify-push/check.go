package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/keys"
	"github.com/socknotify/socknotify/gateway/internal/outbound"
	streams "github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/trust"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

const (
	checkTimeout = 5 * time.Second     // of each connection
	soon         = 30 * 24 * time.Hour // a certificate that expires earlier is warned of
	maxSkew      = time.Second         // by which clocks may differ
)

// check looks at what a start with the same flags would need, writes a line for each thing, and returns
// the exit status: 1 if something would fail. What may be right later, such as a member that does not run
// yet, is a warning.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var wrong bytes.Buffer
	o, err := parse(args, &wrong)
	if errors.Is(err, flag.ErrHelp) {
		io.Copy(stderr, &wrong)
		return 0
	}
	c := &checker{options: o, out: stdout}
	if !c.report("flags", "", err) {
		return 1
	}
	c.files()
	c.certificates()
	c.addresses()
	c.store()
	c.routes(ctx)
	c.elsewhere(ctx)
	c.tokens(ctx)
	c.webhooks(ctx)
	c.clock()
	if c.failed {
		return 1
	}
	return 0
}

// A checker writes what it finds.
type checker struct {
	*options
	out    io.Writer
	failed bool
	clocks []clock
}

// A clock is that of a server.
type clock struct {
	name string
	skew time.Duration // how far it is ahead
}

// report writes a line about something, and returns whether it is right.
func (c *checker) report(what, found string, err error) bool {
	if err != nil {
		c.failed = true
		fmt.Fprintf(c.out, "FAIL  %s: %v\n", what, err)
		return false
	}
	if found != "" {
		found = ": " + found
	}
	fmt.Fprintf(c.out, "ok    %s%s\n", what, found)
	return true
}

func (c *checker) warn(what string, found any) { fmt.Fprintf(c.out, "warn  %s: %v\n", what, found) }

// files reads the files with secrets, and looks at what else the flags name.
func (c *checker) files() {
	for _, f := range []struct {
		flag, name string
		least      int
	}{{"--jwt-secret", c.jwtSecret, 32}, {"--debug-token", c.debugToken, 16}, {"--nats-addr-password", c.natsPassword, 16}} {
		if f.name == "" {
			continue
		}
		_, err := readSecret(f.flag, f.name, f.least)
		c.report(f.flag, f.name, err)
	}
	if c.webhookSecret != "" {
		var err error
		c.config.Webhooks.Secret, err = c.hookSecret()
		c.report("--webhook-secret", c.webhookSecret, err)
	}
	if c.restore != "" {
		f, err := os.Open(c.restore)
		if err == nil {
			f.Close()
		}
		c.report("--restore", c.restore, err)
	}
	hooks := webhook.Config(c.config.Webhooks)
	if err := hooks.Check(); err != nil {
		c.report("--webhook-…", "", err)
	}
	for _, t := range c.config.Presence {
		if err := event.CheckTopic(t, true); err != nil {
			c.report("--presence", "", err)
		}
	}
	for word := range c.config.Topics {
		if err := event.CheckTopic(word, false); err != nil || strings.Contains(word, ".") {
			c.report(topicsName, "", fmt.Errorf("%q is not the first word of a topic", word))
		}
	}
}

// certificates looks at the dates, the names and the signatures of certificates.
func (c *checker) certificates() {
	host := func(address string) []string {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && host != "0.0.0.0" && host != "::" {
			return []string{host}
		}
		return nil
	}
	names := slices.DeleteFunc(slices.Clone(c.config.Hosts), func(h string) bool { return h == "*" })
	c.certificate("--cert", trust.Files{Cert: c.cert, Key: c.key}, names)
	c.certificate("--cluster-cert", trust.Files{Cert: c.node.ClusterCert, Key: c.node.ClusterKey, CA: c.node.ClusterCA},
		host(c.node.Cluster), x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	c.certificate("--nats-addr-cert", trust.Files{Cert: c.node.ListenCert, Key: c.node.ListenKey}, host(c.node.Listen))
	c.certificate("--nats-cert", trust.Files{Cert: c.nats.cert, Key: c.nats.key}, nil)
}

func (c *checker) certificate(flag string, files trust.Files, hosts []string, usages ...x509.ExtKeyUsage) {
	if files.Cert == "" {
		return
	}
	until, names, err := trust.Check(files, hosts, usages...)
	found := fmt.Sprintf("for %s, until %s", names, until.Format(time.DateTime))
	if c.report(flag, found, err) && time.Until(until) < soon {
		c.warn(flag, fmt.Sprintf("it expires in %v", time.Until(until).Round(time.Hour)))
	}
}

// addresses listens on those of this node for a moment.
func (c *checker) addresses() {
	for _, a := range [][2]string{{"--addr", c.addr}, {"--debug-addr", c.debugAddr},
		{"--cluster", c.node.Cluster}, {"--nats-addr", c.node.Listen}} {
		if a[1] == "" {
			continue
		}
		ln, err := net.Listen("tcp", a[1])
		if err == nil {
			ln.Close()
		}
		c.report(a[0], a[1], err)
	}
}

// store writes a file to the folder of the stream, and leaves no trace.
func (c *checker) store() {
	if c.nats.url != "" {
		return
	}
	if c.node.Name == "" {
		c.report("--name", "", errors.New("this machine has no host name: give one"))
	}
	there := c.node.Store // the folder, or the one in which it will be made
	for {
		info, err := os.Stat(there)
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a folder")
		}
		if err == nil {
			break
		}
		if parent := filepath.Dir(there); errors.Is(err, os.ErrNotExist) && parent != there {
			there = parent
			continue
		}
		c.report("--store "+c.node.Store, "", err)
		return
	}
	f, err := os.CreateTemp(there, ".check-*")
	if err == nil {
		_, err = f.Write(make([]byte, 4<<10))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	}
	if err == nil {
		err = streams.CheckStore(c.node.Store, c.node.Cluster != "")
	}
	c.report("--store "+c.node.Store, "can be written", err)
}

// routes connects to the other members. One that refuses may not run yet.
func (c *checker) routes(ctx context.Context) {
	results := make([]error, len(c.node.Routes))
	var dialing sync.WaitGroup
	for i, address := range c.node.Routes {
		dialing.Go(func() {
			if address != c.node.Cluster {
				results[i] = dial(ctx, address)
			}
		})
	}
	dialing.Wait()
	for i, address := range c.node.Routes {
		switch err := results[i]; {
		case address == c.node.Cluster:
		case errors.Is(err, syscall.ECONNREFUSED):
			c.warn("--routes "+address, "nothing listens there; it may not run yet")
		default:
			c.report("--routes "+address, "it can be reached", err)
		}
	}
}

// dial connects.
func dial(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: checkTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

// elsewhere asks the NATS of --nats for its JetStream.
func (c *checker) elsewhere(ctx context.Context) {
	if c.nats.url == "" {
		return
	}
	conn, err := c.nats.connect(nats.Timeout(checkTimeout), nats.NoReconnect())
	if !c.report("--nats "+c.nats.url, "connected", err) {
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		_, err = js.AccountInfo(ctx)
	}
	c.report("--nats "+c.nats.url, "it has JetStream, version "+conn.ConnectedServerVersion(), err)
}

// tokens reads the keys of tokens.
func (c *checker) tokens(ctx context.Context) {
	switch {
	case c.jwks.URL != "":
	case c.jwtSecret == "":
		c.warn("tokens", "there is no --jwt-secret and no --jwks: each client may read and write everything")
		return
	default:
		return
	}
	began := time.Now()
	n, odd, at, err := keys.JWKS{URL: c.jwks.URL, Private: c.jwks.Private}.Try(ctx)
	if err == nil && n == 0 {
		err = errors.New("it has no key that can be used")
	}
	c.report("--jwks "+c.jwks.URL, fmt.Sprintf("%d keys can be used", n), err)
	for _, one := range odd {
		c.warn("--jwks "+c.jwks.URL, one)
	}
	c.note(c.jwks.URL, began, at)
}

// note notes the clock of a server that has answered a request with the time at.
func (c *checker) note(name string, began, at time.Time) {
	if at.IsZero() {
		return
	}
	ended := time.Now()
	at = at.Add(500 * time.Millisecond) // it has no fractions of a second
	if at.Before(began) {
		c.clocks = append(c.clocks, clock{name, at.Sub(began)})
	} else {
		c.clocks = append(c.clocks, clock{name, max(at.Sub(ended), 0)})
	}
}

// webhooks connects to the hosts of the webhooks. No hook is called.
func (c *checker) webhooks(ctx context.Context) {
	w := c.config.Webhooks
	var seen []string
	for _, address := range []string{w.Connect, w.Subscribe, w.Publish, w.Disconnect} {
		u, err := url.Parse(address)
		if address == "" || err != nil || u.Host == "" || slices.Contains(seen, u.Scheme+u.Host) {
			continue // what is malformed was reported
		}
		seen = append(seen, u.Scheme+u.Host)
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		conn, err := outbound.Transport(w.Private, checkTimeout).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err == nil && u.Scheme == "https" {
			secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname()})
			err = secure.HandshakeContext(ctx)
		}
		if conn != nil {
			conn.Close()
		}
		cancel()
		c.report("webhooks of "+u.Host, "it can be reached", err)
	}
}

// clock compares this machine's with those that were seen.
func (c *checker) clock() {
	for _, k := range c.clocks {
		if k.skew.Abs() > maxSkew {
			c.report("clock", "", fmt.Errorf("that of %s differs by %v", k.name, k.skew.Round(time.Second)))
		} else {
			c.report("clock", fmt.Sprintf("as that of %s, to a second", k.name), nil)
		}
	}
	if len(c.clocks) == 0 {
		c.warn("clock", "it was compared with none: members do not say their time before they are members")
	}
}
