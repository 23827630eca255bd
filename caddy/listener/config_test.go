package listener

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/socknotify/socknotify/internal/test/check"
)

// A Caddyfile becomes JSON as that of Caddy's own modules does, and Caddy validates it. Errors name what is wrong.
func TestConfig(t *testing.T) {
	for _, c := range []struct{ name, wrappers, json, err string }{
		{"all parts", "park", `[{"wrapper":"park"}]`, ""},
		{"some parts", "park idle http2", `[{"parts":["idle","http2"],"wrapper":"park"}]`, ""},
		{"after tls", "http_redirect\ntls\npark", `[{"wrapper":"http_redirect"},{"wrapper":"tls"},{"wrapper":"park"}]`, ""},
		{"no part", "park fast", "", `parts: "fast" is none of upgrades, idle, http2, lean_tls`},
		{"upgrades without the module", "park upgrades", `[{"parts":["upgrades"],"wrapper":"park"}]`, "http.handlers.park_upgrades"},
		{"a block", "park {\nidle\n}", "", "park has no block"},
		{"before tls", "park\ntls", `[{"wrapper":"park"},{"wrapper":"tls"}]`, "park must be the last one"},
		{"before another", "park\nhttp_redirect", `[{"wrapper":"park"},{"wrapper":"http_redirect"}]`, "park must be the last one"},
		{"twice", "park\npark", `[{"wrapper":"park"},{"wrapper":"park"}]`, "park must be the last one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(newSite(t, true).config(setting{wrappers: c.wrappers})), nil)
			if c.json == "" {
				expect(t, err, c.err)
				return
			}
			check.OK(t, err)
			if !strings.Contains(string(config), `"listener_wrappers":`+c.json) {
				t.Errorf("%s\nwant %s", config, c.json)
			}
			expect(t, validate(config), c.err)
		})
	}
}

// Configurations that no Caddyfile has.
func TestValidateJSON(t *testing.T) {
	for _, c := range []struct{ name, app, err string }{
		{"parts", `"http": {"servers": {"s": {"listen": ["127.0.0.1:0"], "listener_wrappers": [{"wrapper": "park", "parts": ["lean_tls"]}]}}}`, ""},
		{"no part", `"http": {"servers": {"s": {"listen": ["127.0.0.1:0"], "listener_wrappers": [{"wrapper": "park", "parts": [""]}]}}}`,
			`parts: "" is none of`},
		{"no field", `"http": {"servers": {"s": {"listen": ["127.0.0.1:0"], "listener_wrappers": [{"wrapper": "park", "part": []}]}}}`,
			`unknown field "part"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, validate([]byte(`{"admin": {"disabled": true}, "apps": {`+c.app+`}}`)), c.err)
		})
	}
}

// validate does what the command "caddy validate" does.
func validate(config []byte) error {
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	return caddy.Validate(&c)
}

// expect verifies that err contains want, or is nil if that is empty.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
