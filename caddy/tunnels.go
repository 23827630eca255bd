package caddy

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/socknotify/socknotify/tunnel"
	"go.uber.org/zap/exp/zapslog"
)

// tunnels has the upgraded connections of all configurations: they may outlive theirs.
var tunnels = tunnel.Tunnels{Name: "park_upgrades", TrackFrames: true, Logger: slog.New(currentLog{})}

func init() {
	tunnels.OnUpgrade, tunnels.OnClose = onUpgrade, onClose
	caddy.OnExit(func(context.Context) { farewell(nil) })
}

// An upgrade is a request for one that park_upgrades has seen, and the Value of its tunnel.
type upgrade struct {
	proxy     *Transport // that has had the answer, with status 101
	upstream  *reverseproxy.Host
	dial      string // the address of the upstream
	websocket bool
	joined    bool
	log       *lastLine // nil if there is none
}

// upgradeKey is the key of the upgrade in the context of a request.
type upgradeKey struct{}

// onUpgrade is called when Caddy has begun to copy, instead of which the connections become a tunnel.
func onUpgrade(r *http.Response) tunnel.Options {
	u := r.Request.Context().Value(upgradeKey{}).(*upgrade)
	u.joined = true
	u.websocket = strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	u.proxy.counter.add(u.upstream, u.dial)
	return tunnel.Options{Value: u, Timeout: u.proxy.streamTimeout}
}

// onClose is called when a tunnel has ended.
func onClose(t *tunnel.Tunnel, err error) {
	u := t.Value.(*upgrade)
	u.proxy.counter.remove(u.upstream, u.dial)
	if u.log != nil {
		fromClient, fromBackend := t.Bytes()
		u.log.write(fromClient, fromBackend, err)
	}
}

// answerTime is how long the peers of a WebSocket have to answer a close frame.
const answerTime = 5 * time.Second

// farewell ends the tunnels of a proxy, or all if it is nil. Both peers of a WebSocket are sent a close
// frame.
func farewell(proxy *Transport) {
	for t := range tunnels.All() {
		u := t.Value.(*upgrade)
		switch {
		case proxy != nil && u.proxy != proxy:
		case u.websocket:
			t.Farewell(goingAway(false), goingAway(true), answerTime)
		default:
			t.Farewell([]byte{}, []byte{}, answerTime)
		}
	}
}

// goingAway returns a close frame of WebSocket with code 1001, as a server's or masked as a client's
// (RFC 6455, 5.2 and 7.4.1).
func goingAway(masked bool) []byte {
	payload := binary.BigEndian.AppendUint16(nil, 1001)
	if !masked {
		return append([]byte{0x88, 2}, payload...)
	}
	key := binary.BigEndian.AppendUint32(nil, rand.Uint32())
	for i := range payload {
		payload[i] ^= key[i]
	}
	return append(append([]byte{0x88, 0x80 | 2}, key...), payload...)
}

// currentLog is a slog.Handler that passes lines to the default log of the configuration that is
// active then.
type currentLog struct{}

func (currentLog) handler() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("park_upgrades"))
}

func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

func (l currentLog) Handle(ctx context.Context, r slog.Record) error {
	return l.handler().Handle(ctx, r)
}

func (l currentLog) WithAttrs(attrs []slog.Attr) slog.Handler { return l.handler().WithAttrs(attrs) }
func (l currentLog) WithGroup(name string) slog.Handler       { return l.handler().WithGroup(name) }
