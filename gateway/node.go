package gateway

import (
	"context"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/trust"

	crand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify"
)

// NodeConfig configures an embedded nats-server.
type NodeConfig struct {
	// Name is the name of the server in its cluster. It must be the same after each restart, and no
	// other member may have it.
	Name string
	// Store is the folder of JetStream's files.
	Store string
	// SyncAlways makes the server sync its files before it acknowledges an event. Without it, an
	// event that is acknowledged survives the end of processes, and not the loss of power, because
	// files are synced every two minutes.
	SyncAlways bool
	// Cluster is the address, host:port, on which other members reach this one. It is empty for a
	// single node. Routes are such addresses of members, of which this one may be one.
	Cluster string
	Routes  []string
	// ClusterCert, ClusterKey and ClusterCA are files in PEM, with which members trust each other:
	// a member needs a certificate for a host of Routes that ClusterCA has signed, for servers and
	// for clients. Connections that begin after the files have changed use what they have then.
	// Without them Cluster and Routes must be loopback addresses, unless ClusterInsecure says that
	// no others can reach them.
	ClusterCert, ClusterKey, ClusterCA string
	ClusterInsecure                    bool
	// Listen, if not empty, is an address on which NATS clients are served. With ListenPassword they
	// must be the user "client" with that password. ListenCert and ListenKey are files in PEM for TLS,
	// which are read again as those of the cluster are.
	Listen                string
	ListenPassword        string
	ListenCert, ListenKey string
	// Logger is nil for slog.Default.
	Logger *slog.Logger
}

// A Node is an embedded nats-server with JetStream, and a connection to it within the process.
type Node struct {
	Server  *server.Server
	Conn    *nats.Conn
	others  int // members of the cluster but this one
	options *server.Options
	failed  atomic.Bool           // a single node cannot store events
	certs   []*trust.Certificates // of the cluster and of Listen; nil where there are none
	unwatch func()                // ends the looks at their files
}

const (
	clusterName  = "push"
	routePing    = 2 * time.Second // a stopped peer is noticed after three
	routePings   = 3
	startTimeout = 30 * time.Second
	tlsTimeout   = 10 * time.Second // of the handshake of a client or member
	watchPause   = 200 * time.Millisecond
	revivePauses = 10      // of Watch between two looks at JetStream
	reviveRoom   = 4 << 20 // bytes that must be free on the disk before JetStream is started again
)

// Start starts a server. In a cluster it does not wait for the others.
func Start(config NodeConfig) (*Node, error) {
	if config.Name == "" || config.Store == "" {
		return nil, errors.New("gateway: start: Name and Store are required")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if err := stream.CheckStore(config.Store, config.Cluster != ""); err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: config.Name, JetStream: true, StoreDir: config.Store, SyncAlways: config.SyncAlways,
		NoSigs: true, DontListen: config.Listen == "", MaxPayload: stream.MaxPayload,
		// The disk is the limit. By default nats-server derives one from what is free when it
		// starts, so that a node that is started when little was free would refuse events after
		// room was made.
		JetStreamMaxStore: 1 << 60,
	}
	var connect []nats.Option
	var err error
	if config.Listen != "" {
		if o.Host, o.Port, err = splitAddr(config.Listen); err != nil {
			return nil, fmt.Errorf("gateway: Listen: %w", err)
		}
		// What is published there passes for stored, with the sequence that its headers have.
		// Only gateways know the shard of a topic, give orders, and say who is there.
		subjects := []string{event.RepublishedPrefix + ">", event.ShardsSubject, event.StoredPrefix + event.ControlTopic,
			event.StoredPrefix + event.MercureTopic, event.StoredPrefix + event.MercureIDPrefix + ">",
			event.LivePrefix + event.PresencePrefix + ">", "push.p.>"}
		deny := &server.Permissions{Publish: &server.SubjectPermission{Deny: subjects}}
		own := &server.User{Username: ownClient, Password: crand.Text()}
		o.Users = []*server.User{{Username: anyClient, Password: config.ListenPassword, Permissions: deny}, own}
		if config.ListenPassword == "" {
			o.NoAuthUser = anyClient
		}
		connect = append(connect, nats.UserInfo(own.Username, own.Password))
	}
	if config.Cluster != "" {
		o.Cluster.Name, o.Cluster.PingInterval, o.Cluster.MaxPingsOut = clusterName, routePing, routePings
		o.Cluster.PoolSize = -1 // one route to each member, so that WaitRoutes knows when it is complete
		if o.Cluster.Host, o.Cluster.Port, err = splitAddr(config.Cluster); err != nil {
			return nil, fmt.Errorf("gateway: Cluster: %w", err)
		}
		for _, r := range config.Routes {
			if _, _, err := splitAddr(r); err != nil {
				return nil, fmt.Errorf("gateway: Routes: %w", err)
			}
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
		}
	}
	watching, unwatch := context.WithCancel(context.Background())
	certs, listenCerts, err := config.trust(watching)
	if err != nil {
		unwatch()
		return nil, fmt.Errorf("gateway: start: %w", err)
	}
	if listenCerts != nil {
		o.TLS, o.TLSTimeout = true, tlsTimeout.Seconds()
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: listenCerts.Get}
	}
	if certs != nil {
		hosts := make([]string, len(o.Routes))
		for i, r := range o.Routes {
			hosts[i] = r.Hostname()
		}
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = certs.Mutual(hosts), tlsTimeout.Seconds()
	}
	if o.DontListen && config.Cluster != "" {
		// nats-server has no routes without a listener for clients. So there is one, on a port of
		// this machine, with a token that only this process knows.
		o.DontListen, o.Host, o.Port, o.Authorization = false, "127.0.0.1", server.RANDOM_PORT, crand.Text()
		connect = append(connect, nats.Token(o.Authorization))
	}
	n := &Node{options: o, certs: []*trust.Certificates{certs, listenCerts}, unwatch: unwatch}
	if err := n.start(connect, config.Logger); err != nil {
		unwatch()
		return nil, err
	}
	for _, r := range config.Routes {
		if r != config.Cluster {
			n.others++
		}
	}
	return n, nil
}

// start starts the server, and connects to it.
func (n *Node) start(connect []nats.Option, log *slog.Logger) error {
	s, err := server.NewServer(n.options.Clone())
	if err != nil {
		return fmt.Errorf("gateway: start: %w", err)
	}
	s.SetLoggerV2(natsLog{log}, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return errors.New("gateway: start: nats-server is not ready")
	}
	conn, err := nats.Connect("", append(connect, nats.InProcessServer(s), nats.MaxReconnects(-1))...)
	if err != nil {
		s.Shutdown()
		return fmt.Errorf("gateway: start: %w", err)
	}
	n.Server, n.Conn = s, conn
	return nil
}

// trust opens the certificates of the cluster and of Listen. They are nil where there are none.
func (c *NodeConfig) trust(ctx context.Context) (cluster, listen *trust.Certificates, err error) {
	if c.ListenCert+c.ListenKey != "" {
		if listen, err = trust.Open(ctx, trust.Files{Cert: c.ListenCert, Key: c.ListenKey}, c.Logger); err != nil {
			return nil, nil, err
		}
	}
	cluster, err = c.trustCluster(ctx)
	return cluster, listen, err
}

// trustCluster opens the certificates of the cluster.
func (c *NodeConfig) trustCluster(ctx context.Context) (*trust.Certificates, error) {
	files := trust.Files{Cert: c.ClusterCert, Key: c.ClusterKey, CA: c.ClusterCA}
	switch {
	case files == trust.Files{}:
		for _, address := range append([]string{c.Cluster}, c.Routes...) {
			if address != "" && !c.ClusterInsecure && !trust.IsLoopback(address) {
				return nil, fmt.Errorf("%w: %s is not a loopback address, so the cluster needs ClusterCert, ClusterKey and ClusterCA",
					socknotify.ErrInvalid, address)
			}
		}
		return nil, nil
	case files.Cert == "" || files.Key == "" || files.CA == "":
		return nil, fmt.Errorf("%w: ClusterCert, ClusterKey and ClusterCA go together", socknotify.ErrInvalid)
	case c.ClusterInsecure:
		return nil, fmt.Errorf("%w: ClusterInsecure is without ClusterCert", socknotify.ErrInvalid)
	}
	return trust.Open(ctx, files, c.Logger)
}

// Reload reads the files of the certificates now, and not only when they are looked at
// next. Connections that there are stay. A nil Node has none.
func (n *Node) Reload() {
	if n != nil {
		for _, c := range n.certs {
			c.Reload()
		}
	}
}

// ErrStore is returned by Start for the folder of a single node in a cluster, and for that of a
// member of a cluster without one.
var ErrStore = stream.ErrStore

// anyClient is the user that clients without a name are. ownClient is the gateway, whose password
// only this process knows.
const (
	anyClient = "client"
	ownClient = "gateway"
)

func splitAddr(addr string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(service)
	}
	return host, port, err
}

// WaitRoutes waits until the server has a route to each of the other members, or ctx is done. An
// event of a live topic that is published before, here or there, does not reach the clients of the
// other side.
func (n *Node) WaitRoutes(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		routes, err := n.Server.Routez(nil)
		if err != nil {
			return
		}
		members := make(map[string]bool) // there are several routes to each
		for _, r := range routes.Routes {
			members[r.RemoteName] = true
		}
		if len(members) >= n.others {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Watch calls changed when a route was made or lost, until ctx is done. It starts a single node's
// JetStream again after it has failed, such as on a full disk, and calls changed then, too.
func (n *Node) Watch(ctx context.Context, changed func()) {
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	routes := n.Server.NumRoutes()
	for i := 1; ; i++ {
		select {
		case <-ticker.C:
			if now := n.Server.NumRoutes(); now != routes {
				routes = now
				changed()
			}
			if i%revivePauses == 0 && n.options.Cluster.Name == "" && n.revive() {
				changed()
			}
		case <-ctx.Done():
			return
		}
	}
}

var errStore = errors.New("the disk is full or has failed")

// StoreError reports why a single node cannot store events, or returns nil. Watch finds that out.
// It is for Config.StoreError.
func (n *Node) StoreError() error {
	if n.failed.Load() {
		return errStore
	}
	return nil
}

// revive starts JetStream again if it has failed and there is room on the disk. It reports whether
// it has tried. After a write that has failed, JetStream can be read but answers no publisher until
// it is started again, and nats-server does not do that by itself.
func (n *Node) revive() bool {
	n.failed.Store(n.broken())
	if !n.failed.Load() || !hasRoom(n.options.StoreDir) {
		return false
	}
	n.Server.ShutdownJetStream()
	n.Server.ReloadOptions(n.options.Clone()) // starts JetStream, because the options have it
	n.failed.Store(n.broken())
	return true
}

// broken reports whether JetStream was ended, or a write has failed.
func (n *Node) broken() bool {
	if !n.Server.JetStreamEnabled() {
		return n.Server.JetStreamConfig() == nil // otherwise it is about to end
	}
	return strings.Contains(n.Server.Healthz(nil).Error, "write error")
}

// hasRoom reports whether reviveRoom bytes can be written to a folder.
func hasRoom(folder string) bool {
	f, err := os.Create(filepath.Join(folder, "room")) // always the same, so that a process that is killed leaves one
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, reviveRoom))
	return errors.Join(err, f.Sync(), f.Close()) == nil
}

// Close closes the connection and ends the server.
func (n *Node) Close() {
	n.Conn.Close()
	n.Server.Shutdown()
	n.Server.WaitForShutdown()
	n.unwatch()
}

// unverifiedRoutes begins a warning of nats-server that is not true here: package trust verifies the
// routes.
const unverifiedRoutes = "TLS certificate chain and hostname of solicited routes will not be verified"

// absentMember begins an error of nats-server that is none while members start.
const absentMember = "Error trying to connect to route"

// natsLog gives the server's messages to a logger.
type natsLog struct{ *slog.Logger }

func (l natsLog) Noticef(format string, v ...any) { l.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Fatalf(format string, v ...any)  { l.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.HasPrefix(format, absentMember) {
		level = slog.LevelWarn
	}
	l.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, v...))
}
func (l natsLog) Warnf(format string, v ...any) {
	if !strings.HasPrefix(format, unverifiedRoutes) {
		l.Warn("nats: " + fmt.Sprintf(format, v...))
	}
}
func (l natsLog) Debugf(string, ...any) {}
func (l natsLog) Tracef(string, ...any) {}
