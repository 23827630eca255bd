// Package caddy has modules for Caddy, the web server, whose idle connections then cost no goroutine.
// docs/caddy.md says how to build a Caddy with them. A program that imports the package for its
// effect has the modules:
//
//	http.handlers.park_upgrades            idle WebSockets through reverse_proxy; directive park_upgrades
//	http.reverse_proxy.transport.park      the transport that they need; transport park
//	caddy.listeners.park                   idle connections of clients (see package listener)
//
// Remove their lines from the configuration, and Caddy does what it did before.
package caddy

// The files:
//
//	handler.go    park_upgrades: the client's connection
//	transport.go  transport park: the backend's, and the end of a configuration
//	routes.go     how park_upgrades gives the transport to the proxies behind it
//	tunnels.go    what becomes of both
//	count.go      Caddy's count of requests for each upstream
//	access.go     the access log; metrics.go: Caddy's metrics

import _ "github.com/socknotify/socknotify/caddy/listener"
