package gateway

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"time"
)

// script is the client for browsers and Node.js.
//
//go:embed js/push.js
var script []byte

// description describes the requests and answers, as OpenAPI 3.1.
//
//go:embed openapi.yaml
var description []byte

// A file is served to clients, so that they fit the gateway.
type file struct {
	content   []byte
	kind, tag string
}

func newFile(content []byte, kind string) *file {
	return &file{content, kind, fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
}

// files are served under their paths.
var files = map[string]*file{
	"/push.js":      newFile(script, "text/javascript; charset=utf-8"),
	"/openapi.yaml": newFile(description, "application/yaml"),
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // ask whether it has changed
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}
