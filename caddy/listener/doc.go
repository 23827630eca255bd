// Package listener has the listener wrapper "park" for Caddy. With it, idle connections of clients need no goroutine.
//
// Files, in the order of a connection:
//
//	wrapper.go   the module: its configuration, and what Caddy calls when it starts and stops a server
//	listener.go  the listener: from the first connection on, a park.HTTPServer serves in place of Caddy's http.Server
//	source.go    what the park.HTTPServer accepts from, to the last connection
//	server.go    the park.HTTPServer with the settings and hooks of Caddy's http.Server
//
// Nothing of Caddy is changed or looked at that Caddy does not export. The http.Server, which has the hooks of all modules, is
// the value of http.ServerContextKey in the context of a connection. For that, Caddy's server gets a connection without bytes.
package listener
