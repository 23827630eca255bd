package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/pires/go-proxyproto"
	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server/handover"
)

type proxyFlags struct {
	listenFlags
	to, trust, proxyFrom []string
	tcp, sendProxy       bool
	checkPath            string
	check, drain         time.Duration
}

func proxyCommand() *cobra.Command {
	f := &proxyFlags{}
	c := &cobra.Command{
		Use:   "proxy",
		Short: "Pass HTTP or TCP on to other servers, with idle connections parked",
		Long: "Pass HTTP on to other servers, which take turns, and WebSockets and other upgraded connections too; with\n" +
			"--tcp pass on connections. Those that are idle are parked: they hold neither goroutine nor buffer.\n\n" +
			"X-Forwarded-For, -Host and -Proto are replaced, and all other X-Forwarded headers, X-Real-Ip and Forwarded\n" +
			"removed. Those of a client in a network of --trust are kept, but Forwarded. On SIGHUP it starts its program\n" +
			"again, hands its socket over, and ends when its connections have, or after --drain.",
		Example: "  socknotify proxy --to 127.0.0.1:8080 --to 127.0.0.1:8081 --check-path /healthz\n" +
			"  socknotify proxy --tcp --tls --to 127.0.0.1:5432 --send-proxy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.to, "to", nil, "address of a server to pass on to; may be repeated")
	flags.BoolVar(&f.tcp, "tcp", false, "pass on connections, of any protocol")
	flags.StringSliceVar(&f.proxyFrom, "proxy-from", nil, "network whose connections begin with a header of the PROXY protocol; may be repeated")
	flags.BoolVar(&f.sendProxy, "send-proxy", false, "with --tcp: begin connections to servers with a header of the PROXY protocol, version 2")
	flags.StringSliceVar(&f.trust, "trust", nil, "network whose X-Forwarded headers and X-Real-Ip are kept; may be repeated")
	flags.DurationVar(&f.check, "check", 5*time.Second, "how often servers are checked, by connecting to them; 0 is never")
	flags.StringVar(&f.checkPath, "check-path", "", "check by a GET request of this path, which must be answered with 2xx")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long connections may go on after SIGHUP")
	return c
}

// A proxy is what runs.
type proxy struct {
	*proxyFlags
	log       *slog.Logger
	trusted   networks
	targets   targets
	tunnels   tunnel.Tunnels
	site      park.HTTPServer
	transport http.Transport
	requests  atomic.Int64
	dialing   sync.WaitGroup
	closing   atomic.Bool
}

func (f *proxyFlags) run(cmd *cobra.Command) error {
	from, p, err := f.prepare(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before anyone can know of this process
	defer signal.Stop(hangup)
	addr, config, page, err := f.start(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer page.close()
	set, err := handover.Inherit()
	if err != nil {
		return failure{err}
	}
	listener, err := set.Listen("proxy", "tcp", addr.String())
	if err != nil {
		return failure{err}
	}
	defer listener.Close()
	if p.tunnels.Lot, err = park.New(park.Config{Backend: p.backend, Name: "tunnels", Logger: p.log}); err != nil {
		return failure{err}
	}
	defer p.tunnels.Lot.Shutdown(context.Background())
	page.mount(p, debug.HTTPServer("http", &p.site), debug.Tunnels("tunnels", &p.tunnels))
	fmt.Fprintf(cmd.ErrOrStderr(), "proxy on %v: %s, process %d\n", listener.Addr(), p.backend, os.Getpid())
	start := time.Now()
	err = p.serve(cmd.Context(), set, from.listener(listener), config, hangup)
	st := p.tunnels.Stats()
	fmt.Fprintf(cmd.OutOrStdout(), "requests %d  tunnels %d  bytes %d there, %d back  seconds %.1f\n",
		p.requests.Load(), st.Accepted, st.BytesForth, st.BytesBack, time.Since(start).Seconds())
	return failed(err)
}

// prepare checks the flags that only this command has.
func (f *proxyFlags) prepare(log io.Writer) (from networks, p *proxy, err error) {
	p = &proxy{proxyFlags: f, log: slog.New(slog.NewTextHandler(log, nil))}
	switch {
	case len(f.to) == 0:
		err = errors.New("--to is missing")
	case f.check < 0 || f.drain < 0:
		err = errors.New("--check and --drain must not be negative")
	case f.sendProxy && !f.tcp:
		err = errors.New("--send-proxy needs --tcp, because requests of several clients share a connection")
	case f.tcp && f.checkPath != "":
		err = errors.New("--check-path is for HTTP")
	}
	if err == nil {
		from, err = parseNetworks("--proxy-from", f.proxyFrom)
	}
	if err == nil {
		p.trusted, err = parseNetworks("--trust", f.trust)
	}
	for _, to := range f.to {
		if _, _, e := net.SplitHostPort(to); err == nil && e != nil {
			err = fmt.Errorf("--to: %w", e)
		}
		p.targets.all = append(p.targets.all, &target{address: to})
	}
	p.tunnels.IdleTimeout, p.tunnels.Logger = f.idle, p.log
	return from, p, err
}

// Ready is for the live page.
func (p *proxy) Ready() bool { return !p.closing.Load() }

// serve serves until an interrupt, or until a hangup's successor is ready.
func (p *proxy) serve(ctx context.Context, set *handover.Set, l net.Listener, config *tls.Config,
	hangup <-chan os.Signal) error {
	p.build(config) // before the checks, which use its transport
	checking, stop := context.WithCancel(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer stop()
	for _, t := range p.targets.all {
		checks.Go(func() { t.check(checking, p) })
	}
	failed := make(chan error, 1)
	go func() {
		if p.tcp {
			failed <- p.serveTCP(l, config)
		} else {
			failed <- p.serveHTTP(l)
		}
	}()
	if err := set.Ready(); err != nil {
		p.log.Warn("the predecessor goes on", "err", err)
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			p.end(l, grace, failed)
			return nil
		case <-hangup:
			if err := successor(ctx, set); err != nil {
				p.log.Error("not restarted", "err", err)
				continue
			}
			p.end(l, p.drain, failed)
			return nil
		}
	}
}

// successor starts the program again, and returns when that is ready.
func successor(ctx context.Context, set *handover.Set) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return set.Start(ctx, cmd)
}

// end ends everything, after limit at most. served receives what serveHTTP or serveTCP has
// returned.
func (p *proxy) end(l net.Listener, limit time.Duration, served <-chan error) {
	p.closing.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l.Close()
	p.log.Info("no more connections are accepted")
	if !p.tcp && p.site.Shutdown(ctx) != nil {
		p.site.Close()
	}
	<-served
	p.dialing.Wait()
	p.tunnels.Shutdown(ctx)
	p.transport.CloseIdleConnections()
}

// build makes the server of HTTP.
func (p *proxy) build(config *tls.Config) {
	p.transport.MaxIdleConnsPerHost, p.transport.IdleConnTimeout = 100, time.Minute
	p.transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	p.transport.DisableCompression, p.transport.ExpectContinueTimeout = true, continueTimeout
	handler := p.tunnels.ReverseProxy(&httputil.ReverseProxy{Transport: &p.transport, Rewrite: p.rewrite,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)})
	p.site.Backend = p.backend
	p.site.Server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.requests.Add(1)
			w.Header()["Content-Type"] = nil // net/http adds none if the server has sent none
			handler.ServeHTTP(w, r)
		}),
		TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: p.idle,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
}

// serveHTTP passes requests on.
func (p *proxy) serveHTTP(l net.Listener) error {
	err := serveSite(&p.site, l)
	if p.closing.Load() {
		return nil
	}
	return err
}

const dialTimeout = 5 * time.Second

// continueTimeout is how long a request with "Expect: 100-continue" waits for the server's answer
// before its body is sent. A variable, so that tests have as long as they need.
var continueTimeout = time.Second

// rewrite chooses a server for a request, and changes nothing else but the headers that name the
// client.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", p.targets.next().address
	r.Out.URL.RawQuery = r.In.URL.RawQuery // httputil drops what it cannot parse
	r.Out.Host = r.In.Host
	maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool { return namesClient(name) })
	trusted := p.trusted.contain(r.In.RemoteAddr)
	if trusted {
		r.Out.Header[forwardedFor] = slices.Clone(r.In.Header[forwardedFor])
	}
	r.SetXForwarded()
	for name, v := range r.In.Header {
		if trusted && namesClient(name) && name != forwardedFor && name != "Forwarded" {
			r.Out.Header[name] = slices.Clone(v)
		}
	}
}

const forwardedFor = "X-Forwarded-For"

// namesClient reports whether a header, in its canonical form, is of the family by which proxies name
// a client and what it has asked for: Forwarded, X-Real-Ip, and all that begin with X-Forwarded. Some
// servers take an underscore for a hyphen.
func namesClient(header string) bool {
	if header == "" || header[0] != 'F' && header[0] != 'X' {
		return false
	}
	name := strings.ReplaceAll(strings.ToLower(header), "_", "-")
	return name == "forwarded" || name == "x-real-ip" || strings.HasPrefix(name, "x-forwarded")
}

// serveTCP passes connections on.
func (p *proxy) serveTCP(l net.Listener, config *tls.Config) error {
	for wait := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			p.dialing.Go(func() { p.pass(conn, config) })
			continue
		case p.closing.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second) // too many files, or an ended connection
		p.log.Warn("accept", "err", err, "retry_in", wait)
		time.Sleep(wait)
	}
}

// pass joins a connection with one to a server.
func (p *proxy) pass(conn net.Conn, config *tls.Config) {
	remote := conn.RemoteAddr() // after a header
	backend, err := net.DialTimeout("tcp", p.targets.next().address, dialTimeout)
	if err == nil && p.sendProxy {
		_, err = proxyproto.HeaderProxyFromAddrs(2, remote, conn.LocalAddr()).WriteTo(backend)
	}
	if err == nil {
		if config != nil {
			conn = park.TLSServer(conn, config)
		}
		err = p.tunnels.Join(conn, backend)
	}
	if err != nil {
		p.log.Warn("not passed on", "remote", remote, "err", err)
		conn.Close()
		if backend != nil {
			backend.Close()
		}
	}
}
