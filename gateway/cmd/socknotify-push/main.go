// Command socknotify-push pushes events to browsers and other HTTP clients. It is package gateway as a program.
//
//	socknotify-push                                                    one node, its files in ./push-data
//	socknotify-push --name a --cluster 10.0.0.1:6222 --routes 10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222 \
//		--cluster-cert a.pem --cluster-key a.key --cluster-ca ca.pem
//	socknotify-push --nats nats://127.0.0.1:4222                       an existing NATS with JetStream
//	socknotify-push backup --store push-data FILE                      writes a stopped node's events to a file
//	socknotify-push backup --final --store push-data FILE              the same, to move them to another node
//	socknotify-push check --config FILE                                what a start with these flags would find
//	socknotify-push token --jwt-secret FILE --new --sub alice --read 'orders.>'
//	                                                                   a token for trying things
//	socknotify-push reshard --store push-data 4                        spreads a stopped node's topics over four streams
//
// SIGHUP makes it read its certificates again. SIGTERM and an interrupt drain it: it is not ready from then on, and its clients are told to come back elsewhere. A second
// one ends it at once. The exit status is 0 after a drain, 1 after a failure, and 2 for wrong usage.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/gateway/internal/trust"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal has its default effect
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs a command line, and returns the exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "backup":
			return backup(ctx, args[1:], stderr)
		case "check":
			return check(ctx, args[1:], stdout, stderr)
		case "token":
			return token(args[1:], stdout, stderr)
		case "reshard":
			return reshard(ctx, args[1:], stderr)
		}
	}
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && o.version:
		info, _ := debug.ReadBuildInfo()
		fmt.Fprintln(stdout, "socknotify-push", info.Main.Version, info.GoVersion)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "socknotify-push: %v\n", err)
		return 2
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if err := run(ctx, o, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.level}))); err != nil {
		fmt.Fprintf(stderr, "socknotify-push: %v\n", err)
		return 1
	}
	return 0
}

// collectAt is the growth of the heap, in per cent, at which garbage is collected, unless GOGC is set. Most of the memory is
// that of idle clients, and an event allocates little, so collecting twice as often as by default costs no CPU time that
// TestBeside shows.
const collectAt = 50

// options are the flags.
type options struct {
	addr, debugAddr, cert, key string
	debugToken, natsPassword   string
	debugSecret                []byte // what that file has
	nats                       natsOptions
	node                       gateway.NodeConfig
	config                     gateway.Config
	jwtSecret, restore         string
	webhookSecret              string
	jwks                       gateway.JWKS
	sync, slow                 string
	drain                      time.Duration
	demo, version, h2c         bool
	mercure                    bool
	mercureConfig              gateway.MercureConfig
	level                      slog.Level
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := new(options)
	f := flag.NewFlagSet("socknotify-push", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.serverFlags(f)
	o.storeFlags(f)
	o.clientFlags(f)
	o.limitFlags(f)
	o.webhookFlags(f)
	o.mercureFlags(f)
	file := f.String("config", "", "file in YAML with flags by their names, which those of the command line override; "+
		"topics has options by the first word of a topic")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *file != "" {
		given := make(map[string]bool)
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if err := o.readConfig(f, *file, given); err != nil {
			return nil, err
		}
	}
	if o.mercure {
		o.config.Mercure = &o.mercureConfig
	}
	o.node.SyncAlways = o.sync == "always"
	if o.slow == "drop" {
		o.config.SlowPolicy = gateway.SlowDrop
	}
	if o.config.Stream.Replicas == 0 && o.node.Cluster != "" {
		o.config.Stream.Replicas = 3
	}
	return o, o.check()
}

// serverFlags are about the process.
func (o *options) serverFlags(f *flag.FlagSet) {
	f.StringVar(&o.addr, "addr", "127.0.0.1:8080", "address to serve clients and publishers on")
	f.StringVar(&o.cert, "cert", "", "file with the certificate, for TLS; read again when it changes, and at SIGHUP")
	f.StringVar(&o.key, "key", "", "file with its key")
	f.BoolVar(&o.h2c, "h2c", false, "also take HTTP/2 without TLS, as from a proxy")
	f.StringVar(&o.debugAddr, "debug-addr", "", "address of the status and live pages and of /metrics; none without it")
	f.StringVar(&o.debugToken, "debug-token", "",
		"file with the token, or password of any user, that --debug-addr asks for; needed unless that is a loopback address")
	f.BoolVar(&o.demo, "demo", false, "serve a page under /demo/ that publishes and subscribes")
	f.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error; debug has what nats-server says of elections")
	f.BoolVar(&o.version, "version", false, "print the version")
	f.DurationVar(&o.drain, "drain", 10*time.Second, "time over which clients are sent away at the end")
}

// storeFlags are about NATS and the stream.
func (o *options) storeFlags(f *flag.FlagSet) {
	host, _ := os.Hostname()
	o.nats.flags(f, "URL of an existing NATS with JetStream, instead of an embedded server")
	f.StringVar(&o.node.Store, "store", "push-data", "folder of the embedded server's files")
	f.StringVar(&o.node.Name, "name", host, "name of this node; must stay the same, and differ from other members'")
	f.StringVar(&o.node.Cluster, "cluster", "", "address, host:port, on which other members reach this node")
	listVar(f, &o.node.Routes, "routes", "such addresses of all members, separated by commas")
	f.StringVar(&o.node.ClusterCert, "cluster-cert", "",
		"file with this member's certificate, for its host in --routes, as a server and as a client")
	f.StringVar(&o.node.ClusterKey, "cluster-key", "", "file with its key")
	f.StringVar(&o.node.ClusterCA, "cluster-ca", "", "file with the certificates of those who sign members' certificates")
	f.BoolVar(&o.node.ClusterInsecure, "cluster-insecure", false,
		"allow --cluster and --routes beyond loopback addresses without certificates")
	f.StringVar(&o.node.Listen, "nats-addr", "",
		"address on which the embedded server serves NATS clients")
	f.StringVar(&o.natsPassword, "nats-addr-password", "",
		"file with the password of the user \"client\", whom NATS clients must be; without it they are not authenticated")
	f.StringVar(&o.node.ListenCert, "nats-addr-cert", "", "file with a certificate for --nats-addr")
	f.StringVar(&o.node.ListenKey, "nats-addr-key", "", "file with its key")
	f.StringVar(&o.sync, "sync", "interval", "always: an acknowledged event survives a loss of power. "+
		"interval: it survives the end of processes; files are synced every two minutes")
	f.IntVar(&o.config.Stream.Replicas, "replicas", 0, "copies of the stream (default 3 in a cluster, otherwise 1)")
	f.IntVar(&o.config.Stream.Shards, "shards", 0,
		"streams over which topics are spread, the same on all members (default those that there are, 1 for a new store); "+
			"reshard changes the number, as does --restore")
	f.DurationVar(&o.config.Stream.MaxAge, "max-age", 0,
		"how long events are kept (default that of the stream, 24h for a new one)")
	f.Int64Var(&o.config.Stream.MaxBytes, "max-bytes", 0,
		"how many bytes of events each shard keeps (default those of the stream, 1 GiB for a new one)")
	f.DurationVar(&o.config.Stream.Window, "window", 0,
		"how long idempotency keys are remembered, at most --max-age "+
			"(default that of the stream, 2m or --max-age for a new one)")
	f.StringVar(&o.restore, "restore", "", "file of a backup, from which the stream is made if there is none")
	f.BoolVar(&o.config.Stream.Await, "await-stream", false,
		"wait until another member has restored the stream, do not make it")
}

// clientFlags are about what clients may do.
func (o *options) clientFlags(f *flag.FlagSet) {
	f.StringVar(&o.jwtSecret, "jwt-secret", "",
		"file with the secret of HS256 tokens; without it or --jwks each client may read and write everything")
	f.StringVar(&o.jwks.URL, "jwks", "",
		"https URL of the public keys of RS256, ES256 and EdDSA tokens, instead of --jwt-secret")
	f.BoolVar(&o.jwks.Private, "jwks-private", false, "allow a private or loopback address for --jwks")
	f.StringVar(&o.jwks.Require.Issuer, "jwt-issuer", "", "claim iss that tokens must have; none without it")
	f.StringVar(&o.jwks.Require.Audience, "jwt-audience", "",
		"audience that must be among those of the claim aud of tokens; none without it")
	listVar(f, &o.config.Origins, "origins",
		"origins whose pages may use the gateway, separated by commas; * is all")
	listVar(f, &o.config.PublishOrigins, "publish-origins",
		"those whose pages may publish (default those of --origins)")
	listVar(f, &o.config.Hosts, "hosts", "host names of this node for clients, separated by commas; * is all "+
		"(default all, but localhost alone on a loopback address without tokens)")
	listVar(f, &o.config.Presence, "presence",
		"topics, which may have wildcards, of which it is known who is there, separated by commas")
}

// limitFlags are about how much clients may do.
func (o *options) limitFlags(f *flag.FlagSet) {
	c := &o.config
	f.StringVar(&o.slow, "slow-policy", "close",
		"what happens to clients that read too slowly: close, or drop events and tell them")
	f.IntVar(&c.MaxQueued, "max-queued", 256<<10, "bytes that wait for a client that reads too slowly")
	f.IntVar(&c.Compression, "compression", 0,
		"level, 1 to 9, with which messages to WebSockets are compressed; 0 is no compression")
	f.IntVar(&c.CompressMin, "compress-min", 512, "bytes from which on such a message is compressed")
	f.DurationVar(&c.Heartbeat, "heartbeat", 25*time.Second, "time after which a silent connection gets a heartbeat")
	f.IntVar(&c.MaxConns, "max-conns", 0, "clients of this node; 0 is no limit")
	f.IntVar(&c.MaxConnsPerUser, "max-conns-per-user", 0,
		"connections of a user, the sub of tokens, or of an address without a token, to this node; 0 is no limit")
	f.IntVar(&c.AcceptRate.PerSecond, "accept-rate", 0, "clients that are accepted in a second; 0 is no limit")
	f.IntVar(&c.PublishRate.PerSecond, "publish-rate", 0, "events that a client publishes in a second; 0 is no limit")
	f.IntVar(&c.SubscribeRate.PerSecond, "subscribe-rate", 0,
		"requests to subscribe of a client in a second; 0 is no limit")
	f.IntVar(&c.MessageRate.PerSecond, "message-rate", 0,
		"messages that a client sends over WebSockets in a second; 0 is no limit")
	f.DurationVar(&c.Retry, "retry", 3*time.Second, "average time after which clients come back")
}

// webhookFlags are about a backend that says what clients may do.
func (o *options) webhookFlags(f *flag.FlagSet) {
	w := &o.config.Webhooks
	f.StringVar(&w.Connect, "webhook-connect", "", "https URL that is asked for each request to subscribe")
	f.StringVar(&w.Subscribe, "webhook-subscribe", "", "https URL that is asked for each topic of such a request")
	f.StringVar(&w.Publish, "webhook-publish", "", "https URL that is asked for each event of an HTTP client")
	f.StringVar(&w.Disconnect, "webhook-disconnect", "", "https URL that is told when a client has gone")
	f.StringVar(&o.webhookSecret, "webhook-secret", "",
		"file with the secret that signs these requests, as text or as whsec_ and base64")
	f.DurationVar(&w.Timeout, "webhook-timeout", time.Second, "time that a backend has for an answer")
	f.BoolVar(&w.Private, "webhook-private", false, "allow http, and private or loopback addresses, for the webhooks")
	f.BoolVar(&w.AllowFailed, "webhook-allow-failed", false,
		"let clients do what they want when a backend gives no valid answer; otherwise they get 503")
}

// mercureFlags are about Mercure's protocol.
func (o *options) mercureFlags(f *flag.FlagSet) {
	f.BoolVar(&o.mercure, "mercure", false, "serve Mercure's protocol under /.well-known/mercure; needs tokens")
	f.BoolVar(&o.mercureConfig.Anonymous, "mercure-anonymous", false,
		"let clients without a token subscribe to updates of Mercure that are not private")
	f.BoolVar(&o.mercureConfig.Subscriptions, "mercure-subscriptions", false,
		"publish the subscriptions of Mercure's clients, and answer requests for them")
}

// check reports which flags do not go together.
func (o *options) check() error {
	switch {
	case o.mercure && o.jwtSecret == "" && o.jwks.URL == "":
		return errors.New("--mercure needs --jwt-secret or --jwks")
	case !o.mercure && o.mercureConfig != (gateway.MercureConfig{}):
		return errors.New("--mercure-anonymous and --mercure-subscriptions need --mercure")
	case o.config.Stream.MaxAge > 0 && o.config.Stream.Window > o.config.Stream.MaxAge:
		return fmt.Errorf("--window %v is longer than --max-age %v", o.config.Stream.Window, o.config.Stream.MaxAge)
	case o.config.Stream.Shards < 0 || o.config.Stream.Shards > gateway.MaxShards:
		return fmt.Errorf("--shards %d: want 1 to %d", o.config.Stream.Shards, gateway.MaxShards)
	case o.sync != "always" && o.sync != "interval":
		return fmt.Errorf("--sync %s: want always or interval", o.sync)
	case o.slow != "close" && o.slow != "drop":
		return fmt.Errorf("--slow-policy %s: want close or drop", o.slow)
	case o.limitsUsers() && o.jwtSecret == "" && o.jwks.URL == "":
		return errors.New("read and write of topics need --jwt-secret or --jwks")
	case o.jwks.Require != (gateway.Require{}) && o.jwtSecret == "" && o.jwks.URL == "":
		return errors.New("--jwt-issuer and --jwt-audience need --jwt-secret or --jwks")
	case o.jwks.URL != "" && o.jwtSecret != "":
		return errors.New("--jwt-secret and --jwks: want one of them")
	case o.config.Compression < 0 || o.config.Compression > 9:
		return fmt.Errorf("--compression %d: want 0 to 9", o.config.Compression)
	case (o.cert == "") != (o.key == ""):
		return errors.New("--cert and --key go together")
	case o.h2c && o.cert != "":
		return errors.New("--h2c is without TLS, --cert with it: want one of them")
	case (o.node.Cluster == "") != (len(o.node.Routes) == 0):
		return errors.New("--cluster and --routes go together")
	case o.debugAddr != "" && o.debugToken == "" && !trust.IsLoopback(o.debugAddr):
		return fmt.Errorf("--debug-addr %s is not a loopback address: it needs --debug-token", o.debugAddr)
	case (o.node.ListenCert == "") != (o.node.ListenKey == ""):
		return errors.New("--nats-addr-cert and --nats-addr-key go together")
	case o.node.Listen == "" && o.natsPassword+o.node.ListenCert != "":
		return errors.New("--nats-addr-password and --nats-addr-cert need --nats-addr")
	case o.debugToken != "" && o.debugAddr == "":
		return errors.New("--debug-token needs --debug-addr")
	case o.restore != "" && o.config.Stream.Await:
		return errors.New("--restore and --await-stream: want one of them")
	case o.nats.url != "" && o.node.Cluster != "":
		return errors.New("--nats uses servers that run elsewhere, --cluster makes this process one: want one of them")
	}
	return cmp.Or(o.checkCluster(), o.nats.check())
}

// limitsUsers reports whether some topics are for some users alone.
func (o *options) limitsUsers() bool {
	for _, t := range o.config.Topics {
		if t.Read != nil || t.Write != nil {
			return true
		}
	}
	return false
}

// checkCluster reports what is wrong with the flags of the cluster's certificates.
func (o *options) checkCluster() error {
	n := &o.node
	all := n.ClusterCert != "" && n.ClusterKey != "" && n.ClusterCA != ""
	any := n.ClusterCert != "" || n.ClusterKey != "" || n.ClusterCA != ""
	switch {
	case any && !all:
		return errors.New("--cluster-cert, --cluster-key and --cluster-ca go together")
	case n.Cluster == "" && (any || n.ClusterInsecure):
		return errors.New("--cluster-cert and --cluster-insecure need --cluster")
	case any && n.ClusterInsecure:
		return errors.New("--cluster-cert and --cluster-insecure: want one of them")
	case any || n.ClusterInsecure || n.Cluster == "":
		return nil
	}
	for _, address := range append([]string{n.Cluster}, n.Routes...) {
		if !trust.IsLoopback(address) {
			return fmt.Errorf("%s is not a loopback address: the cluster needs --cluster-cert, --cluster-key and --cluster-ca, "+
				"or --cluster-insecure if no others can reach it", address)
		}
	}
	return nil
}

// listVar defines a flag whose value has commas. The list is nil without a value.
func listVar(f *flag.FlagSet, to *[]string, name, usage string) {
	f.Func(name, usage, func(s string) error {
		*to = append([]string(nil), strings.FieldsFunc(s, func(r rune) bool { return r == ',' })...)
		return nil
	})
}
