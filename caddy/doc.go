// Package caddy has modules for Caddy, the web server, whose idle connections then cost no goroutine.
package caddy

import (
	_ "github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/socknotify/socknotify/park/http2"
	_ "github.com/socknotify/socknotify/tunnel"
)
