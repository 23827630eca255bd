// Package listener has the listener wrapper "park" for Caddy. With it, idle connections of clients need no goroutine.
//
// Files, in the order of a connection:
//
//	wrapper.go   the module: its configuration, and what Caddy calls when it starts and stops a server
//	listener.go  the listener: it serves its first connection as before, and has the others parked
//	source.go    what the park.HTTPServer accepts from, to the last connection
//	server.go    the park.HTTPServer with the settings and hooks of Caddy's http.Server
//
// Nothing of Caddy is changed or looked at that Caddy does not export. The http.Server, which has the hooks of all modules,
// is the value of http.ServerContextKey in the context of the first connection.
package listener
