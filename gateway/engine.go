package gateway

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	// single node. Routes are such addresses of members, of which this one may be one. Routes are
	// not authenticated: the addresses must not be reachable for others.
	Cluster string
	Routes  []string
	// Listen, if not empty, is an address on which NATS clients are served.
	Listen string
	// Logger is nil for slog.Default.
	Logger *slog.Logger
}

// A Node is an embedded nats-server with JetStream, and a connection to it within the process.
type Node struct {
	Server  *server.Server
	Conn    *nats.Conn
	others  int // members of the cluster but this one
	options *server.Options
	failed  atomic.Bool // a single node cannot store events
}

const (
	clusterName  = "push"
	routePing    = 2 * time.Second // a stopped peer is noticed after three
	routePings   = 3
	startTimeout = 30 * time.Second
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
	if err := checkStore(config.Store, config.Cluster != ""); err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: config.Name, JetStream: true, StoreDir: config.Store, SyncAlways: config.SyncAlways,
		NoSigs: true, DontListen: config.Listen == "", MaxPayload: maxPayload,
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
		// And only gateways give orders, and say who is there.
		subjects := []string{republishedPrefix + ">", storedPrefix + controlTopic,
			storedPrefix + mercureTopic, storedPrefix + mercureIDPrefix + ">",
			livePrefix + presencePrefix + ">", "push.p.>"}
		deny := &server.Permissions{Publish: &server.SubjectPermission{Deny: subjects}}
		own := &server.User{Username: ownClient, Password: crand.Text()}
		o.Users = []*server.User{{Username: anyClient, Permissions: deny}, own}
		o.NoAuthUser = anyClient
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
	if o.DontListen && config.Cluster != "" {
		// nats-server has no routes without a listener for clients. So there is one, on a port of
		// this machine, with a token that only this process knows.
		o.DontListen, o.Host, o.Port, o.Authorization = false, "127.0.0.1", server.RANDOM_PORT, crand.Text()
		connect = append(connect, nats.Token(o.Authorization))
	}
	s, err := server.NewServer(o.Clone())
	if err != nil {
		return nil, fmt.Errorf("gateway: start: %w", err)
	}
	s.SetLoggerV2(natsLog{config.Logger}, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, errors.New("gateway: start: nats-server is not ready")
	}
	conn, err := nats.Connect("", append(connect, nats.InProcessServer(s), nats.MaxReconnects(-1))...)
	if err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("gateway: start: %w", err)
	}
	others := 0
	for _, r := range config.Routes {
		if r != config.Cluster {
			others++
		}
	}
	return &Node{Server: s, Conn: conn, others: others, options: o}, nil
}

// ErrStore is returned by Start for the folder of a single node in a cluster, and for that of a
// member of a cluster without one.
var ErrStore = errors.New("gateway: start: wrong folder")

// checkStore reports what is wrong with a folder. nats-server deletes streams that its cluster does
// not know of, and a member's folder alone is no quorum.
func checkStore(store string, clustered bool) error {
	root := filepath.Join(store, "jetstream")
	_, err := os.Stat(filepath.Join(root, "$SYS", "_js_", "_meta_"))
	member := err == nil
	streams, _ := os.ReadDir(filepath.Join(root, "$G", "streams"))
	switch {
	case clustered && !member && len(streams) > 0:
		return fmt.Errorf("%w: %s has a single node's events; start the cluster with an empty folder and a backup of them",
			ErrStore, store)
	case !clustered && member:
		return fmt.Errorf("%w: %s belongs to a member of a cluster", ErrStore, store)
	}
	return nil
}

// anyClient is the user that clients without a name are. ownClient is the gateway, whose password
// only this process knows.
const (
	anyClient = "client"
	ownClient = "gateway"
)

const (
	maxPayload = 8 << 20 // bytes of a message with its headers
	maxHeaders = 4 << 10 // bytes of the headers of an event
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
}

// natsLog gives the server's messages to a logger.
type natsLog struct{ *slog.Logger }

func (l natsLog) Noticef(format string, v ...any) { l.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Warnf(format string, v ...any)   { l.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Fatalf(format string, v ...any)  { l.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Errorf(format string, v ...any)  { l.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Debugf(string, ...any)           {}
func (l natsLog) Tracef(string, ...any)           {}

// StreamConfig describes the stream of the durable topics. A stream that exists is changed to what
// is set here; what is zero stays as it is there. New fails with ErrStream if the change is not
// possible.
type StreamConfig struct {
	Name     string        // "" is PUSH
	Replicas int           // of a new stream, 0 is 1
	MaxAge   time.Duration // how long events are kept; 0 is 24 hours
	MaxBytes int64         // how many bytes are kept, of each replica; 0 is 1 GiB
	// Window is how long publishers' keys are remembered, at most MaxAge. 0 is 2 minutes, or MaxAge if
	// that is less.
	Window time.Duration
	// Restore, if not nil, is a backup from which the stream is made if there is none, with the
	// backup's configuration where a field is zero. Await makes the gateway wait for the stream
	// instead, until another node has restored it.
	Restore io.ReadSeeker
	Await   bool
}

// ErrStream is returned by New if JetStream refuses to make the stream as StreamConfig says, or to
// change it to that.
var ErrStream = errors.New("gateway: the stream cannot be as configured")

// apply changes a stream that exists to what is set in c.
func (c *StreamConfig) apply(ctx context.Context, js jetstream.JetStream,
	now jetstream.StreamConfig, log *slog.Logger) error {
	changed := now
	names := differ(nil, "Replicas", &changed.Replicas, c.Replicas)
	names = differ(names, "MaxAge", &changed.MaxAge, c.MaxAge)
	names = differ(names, "MaxBytes", &changed.MaxBytes, c.MaxBytes)
	window := c.Window
	if window == 0 && changed.MaxAge > 0 {
		window = min(now.Duplicates, changed.MaxAge)
	}
	names = differ(names, "Window", &changed.Duplicates, window)
	if len(names) == 0 {
		return nil
	}
	what := strings.Join(names, ", ")
	_, err := js.UpdateStream(ctx, changed)
	if err == nil {
		log.Info("gateway: the stream was changed", "stream", now.Name, "what", what)
	}
	return refusal(err, what)
}

// differ changes a setting to what is wanted, if that is more than 0, and adds the change to names.
func differ[N int | int64 | time.Duration](names []string, name string, now *N, want N) []string {
	if want <= 0 || want == *now {
		return names
	}
	names = append(names, fmt.Sprintf("%s from %v to %v", name, *now, want))
	*now = want
	return names
}

// refusal returns ErrStream for an answer of JetStream that no waiting will change, and other
// errors as they are.
func refusal(err error, what string) error {
	var refused *jetstream.APIError
	if errors.As(err, &refused) && slices.Contains(refusals, refused.ErrorCode) {
		return fmt.Errorf("%w: %s: %w", ErrStream, what, err)
	}
	return err
}

// refusals are JetStream's codes for a configuration that is not possible: as such, and for its
// replicas.
var refusals = []jetstream.ErrorCode{10052, 10074}

// The metadata of the stream. epochKey says which stream it is: a stream that is deleted and made
// once more, or made from a backup, has another epoch. erasKey has the eras of the streams that it
// was made from, as JSON. A stream with restoringKey is being made from a backup. One with
// closedKey takes no event any more.
const (
	epochKey     = "push-epoch"
	erasKey      = "push-eras"
	restoringKey = "push-restoring"
	closedKey    = "push-closed"
)

// An era is an epoch of another stream from which this one was made. They have the same events up
// to the sequence Last.
type era struct {
	Epoch string
	Last  uint64
	Whole bool // the other stream never had a later event in this epoch
}

// maxEras bounds the eras that a stream remembers.
const maxEras = 32

// erasOf returns the eras in a stream's metadata, the newest first.
func erasOf(metadata map[string]string) (eras []era) {
	json.Unmarshal([]byte(metadata[erasKey]), &eras) // what cannot be read is unknown
	return eras
}

// newEpoch returns the name of an epoch.
func newEpoch() string {
	b := make([]byte, 4)
	crand.Read(b)
	return hex.EncodeToString(b)
}

// endEra gives a stream that was made from a backup a new epoch, and opens it.
func endEra(ctx context.Context, js jetstream.JetStream, name string) error {
	return updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
		m := info.Config.Metadata
		eras := append([]era{{m[epochKey], info.State.LastSeq, m[closedKey] != ""}}, erasOf(m)...)
		m[epochKey] = newEpoch()
		m[erasKey] = string(encode(eras[:min(len(eras), maxEras)]))
		delete(m, restoringKey)
		delete(m, closedKey)
		info.Config.Subjects = []string{storedPrefix + ">"}
	})
}

// updateStream changes the configuration of a stream.
func updateStream(ctx context.Context, js jetstream.JetStream, name string,
	change func(*jetstream.StreamInfo)) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if info.Config.Replicas > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
		return errNoLeader // its last sequence may be an old one
	}
	info.Config.Metadata = maps.Clone(info.Config.Metadata)
	if info.Config.Metadata == nil {
		info.Config.Metadata = make(map[string]string)
	}
	change(info)
	_, err = js.UpdateStream(ctx, info.Config)
	return err
}

var errRestoring = errors.New("it is being restored")

const defaultStream = "PUSH"

// makeStream makes the stream, unless it exists, and returns its name. In a cluster it tries again
// until there is a leader. maxEvent is the largest event.
func makeStream(ctx context.Context, js jetstream.JetStream, c StreamConfig, maxEvent int, log *slog.Logger) (
	name string, err error) {
	if c.Name == "" {
		c.Name = defaultStream
	}
	maxAge := cmp.Or(c.MaxAge, 24*time.Hour)
	config := jetstream.StreamConfig{
		Name: c.Name, Subjects: []string{storedPrefix + ">"}, Replicas: cmp.Or(c.Replicas, 1),
		MaxAge: maxAge, MaxBytes: cmp.Or(c.MaxBytes, 1<<30),
		Duplicates: cmp.Or(c.Window, min(2*time.Minute, maxAge)),
		Storage:    jetstream.FileStorage, Discard: jetstream.DiscardOld,
		AllowDirect: true, DenyDelete: true, DenyPurge: true,
		MaxMsgSize: int32(min(maxEvent+maxHeaders, math.MaxInt32)),
		RePublish: &jetstream.RePublish{
			Source: storedPrefix + ">", Destination: republishedPrefix + ">"},
		Metadata: map[string]string{epochKey: newEpoch()},
	}
	reported := ""
	for first := true; ; first = false {
		exists, err := tryStream(ctx, js, c, config, log)
		if exists && first && c.Restore != nil {
			log.Info("gateway: the stream exists, so the backup is not restored", "stream", c.Name)
		}
		if err == nil {
			return c.Name, nil
		}
		if errors.Is(err, ErrBackup) || errors.Is(err, ErrClosed) || errors.Is(err, ErrStream) {
			return "", err
		}
		if text := err.Error(); text != reported { // it may last until other members have started, or for good
			reported = text
			log.Info("gateway: the stream does not exist yet", "stream", c.Name, "err", err)
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return "", fmt.Errorf("gateway: make stream %s: %w", c.Name, err)
		}
	}
}

// tryStream makes the stream, or changes the one that exists.
func tryStream(ctx context.Context, js jetstream.JetStream, c StreamConfig,
	config jetstream.StreamConfig, log *slog.Logger) (exists bool, err error) {
	try, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := js.Stream(try, c.Name)
	restoring := false // by another node, or by this one before it ended
	switch {
	case err == nil:
		m := stream.CachedInfo().Config.Metadata
		if restoring = m[restoringKey] != ""; restoring {
			break
		}
		if m[closedKey] != "" {
			return true, ErrClosed
		}
		return true, c.apply(try, js, stream.CachedInfo().Config, log)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return false, err
	}
	switch {
	case restoring && c.Restore == nil:
		return false, errRestoring
	case c.Await:
		return false, err
	case c.Restore == nil:
		_, err = js.CreateStream(try, config)
		return false, refusal(err, fmt.Sprintf("Replicas %d, MaxAge %v, MaxBytes %d, Window %v",
			config.Replicas, config.MaxAge, config.MaxBytes, config.Duplicates))
	case !restoring:
		if err = restore(ctx, js.Conn(), c); err != nil {
			return false, err
		}
	}
	end, cancelEnd := context.WithTimeout(ctx, requestTimeout) // a restore takes its time
	defer cancelEnd()
	if err = endEra(end, js, c.Name); err != nil {
		return false, err
	}
	if stream, err = js.Stream(end, c.Name); err != nil {
		return false, err
	}
	return false, c.apply(end, js, stream.CachedInfo().Config, log)
}
