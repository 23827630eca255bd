// Package tunnel joins pairs of connections, such as those of a proxy's client and its backend. A
// [Tunnel] in which no bytes move needs no goroutine and no buffer.
//
// [Tunnels.Join] joins any two connections. [Tunnels.ReverseProxy] does it behind
// httputil.ReverseProxy, for WebSocket and other upgrades, [Tunnels.Handler] and
// [Tunnels.RoundTripper] around another proxy, and [ConnectProxy] answers CONNECT.
// docs/tunnels.md says how.
//
// The causes of tunnels that have ended have the names that they have in package park, such as
// park.ErrIdle.
package tunnel

// The files. A tunnel passes these:
//
//	tunnels.go  Tunnels: connections are joined, and Shutdown
//	tunnel.go   a side becomes ready, and the tunnel ends
//	copy.go     bytes move; farewell.go: the last ones, and the frames of WebSocket
//	handler.go  around a proxy that copies
//	proxy.go    behind a ReverseProxy; upgrade.go: what a client may ask to go on with
//	connect.go  CONNECT; inside.go: addresses that are not on the Internet
//
// internal/serving/carrier has how a connection is read, written and parked, whatever it is, and
// internal/serving/group how many tunnels there are, and how they end.
