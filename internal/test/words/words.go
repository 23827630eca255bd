// Package words holds the one vocabulary of all servers. Each package or module that has servers
// calls Check with its Config, Server and Stats types, Keys with its folder, and the other
// functions for what its servers promise alike.
package words

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// shared has the words that mean the same in every server, with their types. docs/servers.md says
// what they mean.
var shared = map[string]string{
	"Backend": "string", "Logger": "*slog.Logger", "Name": "string", "TLSConfig": "*tls.Config",
	"TimeCalls": "bool", "Unwrap": "func(net.Conn) net.Conn",

	"IdleTimeout": "time.Duration", "ReadTimeout": "time.Duration", "WriteTimeout": "time.Duration",
	"HandshakeTimeout": "time.Duration",

	"MaxConns": "int", "MaxConnsPerAddr": "int", "MaxMessage": "int", "MaxQueued": "int",
	"MaxRunning": "int", "SlowPolicy": "serving.SlowPolicy",

	"AcceptRate": "serving.Rate", "AcceptRatePerAddr": "serving.Rate", "ReadRate": "serving.Rate",
	"WriteRate": "serving.Rate",

	"Accepted": "uint64", "CallTime": "metrics.Histogram", "Calls": "uint64", "Conns": "int",
	"Panics": "uint64", "Parked": "int", "QueuedBytes": "int64", "Refused": "uint64", "Rejected": "uint64",
	"Running": "int", "TimedOut": "metrics.TimedOut", "Waiting": "int", "Workers": "int",
}

// own has the words that only one server has, each with the reason.
var own = map[string]map[string]string{
	"park.Stats": {
		"RefusedPerAddr": "a part of Refused", "Handshakes": "TLS is the server's",
		"CryptoTLS": "a part of its connections", "UnparkedHTTP2": "a part of its connections", "Dropped": "by SlowDrop",
		"Parks": "of a Lot", "AtOnce": "of a Lot", "Expired": "of a Lot", "Unparkable": "of a Lot",
		"Suspended": "Suspend", "Blocked": "a part of Suspended", "SuspendedBytes": "Suspend",
		"LongestWait": "Suspend", "WaitTime": "Suspend", "Resumed": "Suspend", "WaitTimeouts": "Suspend: no connection is closed",
		"ClientsGone": "Suspend", "WaitsClosed": "Suspend",
		"RefusedSuspends": "Refused counts connections",
		"BytesForth":      "traffic", "BytesBack": "traffic", "Copied": "upgraded connections without a tunnel",
	},
	"stream.Streams": {"OnInput": "called", "OnTimer": "called", "OnShutdown": "called", "OnClose": "called",
		"Lot": "may be shared"},
	"tunnel.Tunnels": {"OnClose": "called", "OnUpgrade": "called", "Lot": "may be shared", "UpgradeToHTTP": "HTTP", "TrackFrames": "WebSocket",
		"HalfCloseTimeout": "no server goes on after a half-close"},
	"tunnel.ConnectProxy": {"Tunnels": "has the tunnels", "Allow": "called", "Ports": "HTTP", "Inside": "HTTP",
		"Dialer": "connects", "Other": "called"},
	"park.Server":         {"Handler": "called", "Open": "called", "Closed": "called", "CryptoTLS": "TLS"},
	"park.ListenerConfig": {"MaxWaiting": "connections that no server has accepted are not its Conns"},
	"park.HTTPServer": {
		"Server": "net/http's server has Handler, timeouts, limits, TLSConfig and ErrorLog",
		"HTTP2":  "another module", "Linger": "net/http has no such time", "OnLot": "a lot for each Serve",
		"CryptoTLS":    "TLS",
		"MaxSuspended": "Suspend", "MaxSuspendedBytes": "Suspend", "EndSuspended": "Suspend",
	},
	"http2.Server": {"Server": "as in park.HTTPServer", "Linger": "as in park.HTTPServer",
		"ExtendedConnect": "RFC 8441"},
	"websocket.Server": {
		"OnOpen": "called", "OnMessage": "called", "OnPong": "called", "OnClose": "called", "CheckOrigin": "called",
		"Compression": "RFC 7692", "CompressMin": "RFC 7692", "Subprotocols": "RFC 6455", "MaxFrame": "RFC 6455",
		"MaxPings": "RFC 6455", "PingInterval": "RFC 6455", "PongTimeout": "RFC 6455", "CloseTimeout": "RFC 6455",
	},
	"websocket.Stats": {"Dropped": "by SlowDrop"},
	"sse.Server": {"OnOpen": "called", "OnHeartbeat": "called", "OnClose": "called", "Lot": "may be shared",
		"Heartbeat": "Server-Sent Events", "Retry": "Server-Sent Events"},
	"sse.Stats": {"Dropped": "by SlowDrop"},
	"gateway.Config": {
		"Conn": "NATS", "Stream": "JetStream", "StoreError": "JetStream", "Authorize": "HTTP", "Origins": "HTTP",
		"PublishOrigins": "HTTP", "Hosts": "HTTP", "Heartbeat": "of Server-Sent Events and long polling",
		"Retry": "of Server-Sent Events", "Presence": "topics", "Topics": "topics", "MaxConnsPerUser": "by the subject of a grant", "Webhooks": "HTTP", "Mercure": "a protocol",
		"AcceptRate": "its type is of the gateway's module", "PublishRate": "of each client", "SubscribeRate": "of each client", "MessageRate": "of each client",
		"Compression": "RFC 7692", "CompressMin": "RFC 7692",
	},
	"gateway.Stats": {
		"Topics": "NATS", "Published": "events", "Events": "events", "Delivered": "events",
		"Dropped": "by SlowDrop", "Resumed": "ids", "Gaps": "JetStream", "Repairs": "JetStream",
		"Audits": "JetStream", "AuditFailures": "JetStream", "Denied": "tokens", "Strange": "NATS",
		"Hooks": "HTTP", "HookFailures": "HTTP",
		"First": "JetStream", "Last": "JetStream", "Epoch": "JetStream",
	},
	"server.Server": {
		"Handler": "called", "Preamble": "called", "OnStart": "called",
		"Workers": "its goroutines", "Shards": "its ports", "BufferSize": "its buffers",
		"SilentIsIdle": "what IdleTimeout counts", "MaxQueuedTotal": "of all peers", "KeepAlive": "as in net.ListenConfig",
		"KeepAliveConfig": "as in net.ListenConfig", "MaxHandshakes": "TLS", "CryptoTLS": "TLS", "StuckAfter": "its goroutines",
	},
	"server.Stats": {
		"Handshaking": "a part of Conns", "Hijacked": "a part of Conns", "Longest": "the age of a call",
		"RefusedPerAddr": "a part of Refused", "RejectedHeaders": "a part of Rejected",
		"Overloads": "by MaxQueuedTotal", "BytesIn": "traffic", "BytesOut": "traffic", "Stuck": "by StuckAfter",
		"Handshakes": "TLS", "EvictedHandshakes": "by MaxHandshakes", "CryptoTLS": "a part of Handshakes",
	},
	"server.PacketServer": {"Handler": "called", "OnStart": "called", "Workers": "its goroutines",
		"StuckAfter": "its goroutines"},
	"server.PacketStats": {
		"Received": "datagrams", "Sent": "datagrams", "Dropped": "datagrams", "Sockets": "it has no Conns",
		"Stuck": "by StuckAfter", "Longest": "the age of a call",
	},
}

var parameters = regexp.MustCompile(`\[.*\]`)

// Check fails for an exported field of a struct type that is not in the vocabulary or has another
// type there, and for an embedded struct with exported fields, which may hide fields.
func Check(t *testing.T, types ...reflect.Type) {
	t.Helper()
	for _, s := range types {
		for _, fault := range faults(s) {
			t.Error(fault)
		}
	}
}

// faults returns what is wrong with a struct type.
func faults(s reflect.Type) (all []string) {
	name := parameters.ReplaceAllString(s.String(), "")
	for i := range s.NumField() {
		f := s.Field(i)
		want, common := shared[f.Name]
		_, listed := own[name][f.Name]
		switch got := f.Type.String(); {
		case f.Anonymous && exports(f.Type):
			all = append(all, name+" embeds "+got)
		case !f.IsExported(), listed:
		case !common:
			all = append(all, name+"."+f.Name+" is not in the vocabulary")
		case got != want:
			all = append(all, name+"."+f.Name+" is a "+got+", want "+want)
		}
	}
	return all
}

// exports reports whether a type has exported fields.
func exports(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return true
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			return true
		}
	}
	return false
}

// Negative sets every number and duration of a server or a config that is a word of all servers to
// a negative value, and returns the names of the fields. The server must work as if there were none
// of these limits.
func Negative(config any) (names []string) {
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		field := v.Field(i)
		if _, ok := shared[f.Name]; !ok {
			continue
		}
		switch {
		case field.CanInt():
			field.SetInt(-1)
		case strings.HasSuffix(f.Name, "Rate"), strings.HasSuffix(f.Name, "RatePerAddr"):
			field.FieldByName("PerSecond").SetInt(-1)
		default:
			continue
		}
		names = append(names, f.Name)
	}
	return names
}
