package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/websocket"
)

// ClientHeader is the header of an answer of Server-Sent Events that has the id of the connection.
const ClientHeader = "Push-Client"

// ExpiresHeader is the header of an answer of Server-Sent Events whose connection can be changed. It
// has the seconds after which the client expires, or 0.
const ExpiresHeader = "Push-Expires-In"

// AllowOrigin sets the headers that let pages of other origins use the gateway, if the origin is
// one of the given ones.
func AllowOrigin(w http.ResponseWriter, r *http.Request, origins []string) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !AllowsOrigin(origins, origin) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", ClientHeader+", "+ExpiresHeader)
	if slices.Contains(origins, origin) { // cookies are not for any origin
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers",
			"Authorization, Cache-Control, Content-Type, Idempotency-Key, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "600")
	}
}

func AllowsOrigin(origins []string, origin string) bool {
	return origin != "" && (slices.Contains(origins, origin) || slices.Contains(origins, "*"))
}

// MayPublish reports whether the page that has sent a request may publish. Browsers send a POST of
// any page, with the cookies of the gateway, and keep only the answer from the page.
func (c *Config) MayPublish(r *http.Request) bool { return mayAct(r, c.PublishOrigins) }

// MayChange reports whether the page that has sent a request may change its connection.
func (c *Config) MayChange(r *http.Request) bool { return mayAct(r, c.Origins) }

func mayAct(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && (websocket.SameOrigin(r) || slices.Contains(origins, origin)) {
		return true
	}
	if r.Header.Get("Cookie") != "" && r.Header.Get("Authorization") == "" {
		return false
	}
	return origin == "" || slices.Contains(origins, "*")
}

// AllowsHost reports whether the gateway serves the host of a request.
func (c *Config) AllowsHost(r *http.Request) bool {
	switch {
	case r.Host == "", KnownHost(r.Host, c.Hosts), slices.Contains(c.Hosts, "*"):
		return true
	case len(c.Hosts) > 0:
		return false
	case c.Authorize != nil:
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || !local.IP.IsLoopback()
}

// KnownHost reports whether the host of a request, which may have a port, is one of names, or a name
// of this machine that no other site can have: an address, or localhost. A page of another site can
// reach a server on this machine by a name of its own that stands for the address; its requests have
// that name.
func KnownHost(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}
