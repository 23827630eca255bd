package gateway

import (
	"bytes"
	"crypto/sha256"

	"github.com/socknotify/socknotify/gateway/internal/access"

	_ "embed"
	"fmt"
	"net/http"
	"time"
)

// script is the client for browsers and Node.js.
//
//go:embed js/push.js
var script []byte

var scriptTag = fmt.Sprintf(`"%x"`, sha256.Sum256(script))

// serveScript serves the client, so that it fits the gateway.
func (g *Gateway) serveScript(w http.ResponseWriter, r *http.Request) {
	access.AllowOrigin(w, r, g.config.Origins)
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache") // ask whether it has changed
	w.Header().Set("ETag", scriptTag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(script))
}
