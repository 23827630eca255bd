// Package chat is the chat of the command: a page, and a hub of WebSockets.
package chat

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/park"
)

//go:embed page
var files embed.FS

// A Site is the page, the chat at /chat, and counts at /stats.
type Site struct {
	Hub    *Hub
	server park.HTTPServer
}

// New returns a site that pings connections which have been silent for a time.
func New(ping time.Duration) (*Site, error) {
	h := newHub(ping)
	page, err := fs.Sub(files, "page")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.Handle("GET /chat", h)
	mux.HandleFunc("GET /stats", h.serveStats)
	s := &Site{Hub: h}
	s.server.Server = &http.Server{Handler: guarded(mux), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	return s, nil
}

// guarded restricts the page to resources of this server.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// Serve serves until Close, and then returns http.ErrServerClosed.
func (s *Site) Serve(l net.Listener) error { return s.server.Serve(l) }

// Close tells all members that the server goes away, and waits until they have left.
func (s *Site) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if failed := s.Hub.Shutdown(ctx); err == nil {
		err = failed
	}
	return err
}

// stats are the counts that the page shows.
type stats struct {
	Members    int `json:"members"`
	Parked     int `json:"parked"`
	Workers    int `json:"workers"`
	Goroutines int `json:"goroutines"`
}

func (h *Hub) stats() stats {
	s := h.Stats()
	return stats{s.Conns, s.Parked, s.Workers, runtime.NumGoroutine()}
}

func (h *Hub) serveStats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(h.stats())
}
