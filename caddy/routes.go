package caddy

import (
	"bytes"
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parkRoutesOf gives the transport park to the proxies that come after park_upgrades in the routes of a
// module. It reports whether it knows the module's routes. Caddy loads the handlers of a list of
// routes in their order, and drops the configuration of each list of handlers that it has loaded. So
// the proxies that come later still have theirs, and it can be changed.
func parkRoutesOf(parent caddy.Module) bool {
	switch m := parent.(type) {
	case *caddyhttp.Subroute:
		parkRoutes(m.Routes)
		if m.Errors != nil {
			parkRoutes(m.Errors.Routes)
		}
	case *caddyhttp.App:
		for _, s := range m.Servers {
			if parkRoutes(s.Routes) {
				for _, route := range s.NamedRoutes { // which may be invoked by routes that come after it
					parkHandlers(route.HandlersRaw)
				}
			}
			if s.Errors != nil {
				parkRoutes(s.Errors.Routes)
			}
		}
	default:
		return false
	}
	return true
}

// parkRoutes changes the routes behind park_upgrades. It reports whether the list has that.
func parkRoutes(routes caddyhttp.RouteList) (behind bool) {
	for _, route := range routes {
		if behind {
			parkHandlers(route.HandlersRaw)
			continue
		}
		for i, raw := range route.HandlersRaw {
			if isParkUpgrades(raw) {
				behind = true
				parkHandlers(route.HandlersRaw[i+1:])
				break
			}
		}
	}
	return behind
}

func parkHandlers(handlers []json.RawMessage) {
	for i, raw := range handlers {
		handlers[i] = parkProxies(raw)
	}
}

func isParkUpgrades(raw json.RawMessage) bool {
	var named struct {
		Handler string `json:"handler"`
	}
	return json.Unmarshal(raw, &named) == nil && named.Handler == "park_upgrades"
}

// parkProxies returns the configuration of a handler in which all proxies have the transport park
// instead of http.
func parkProxies(raw json.RawMessage) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var config any
	if decoder.Decode(&config) != nil || !parkWithin(config) {
		return raw
	}
	changed, err := json.Marshal(config)
	if err != nil {
		return raw
	}
	return changed
}

// parkWithin changes the proxies in a part of a configuration. It reports whether there are some.
func parkWithin(config any) (changed bool) {
	switch c := config.(type) {
	case []any:
		for _, v := range c {
			changed = parkWithin(v) || changed
		}
	case map[string]any:
		for _, v := range c {
			changed = parkWithin(v) || changed
		}
		if c["handler"] != "reverse_proxy" {
			return changed
		}
		transport, ok := c["transport"].(map[string]any)
		switch {
		case c["transport"] == nil:
			c["transport"] = map[string]any{"protocol": "park"}
			return true
		case ok && transport["protocol"] == "http":
			transport["protocol"] = "park"
			return true
		}
	}
	return changed
}
