package gateway_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// A program of its own serves a gateway on one node until ctx is done.
func Example() {
	_ = serve
}

func serve(ctx context.Context, logger *slog.Logger) error {
	node, err := gateway.Start(gateway.NodeConfig{Name: "a", Store: "push-data", Logger: logger})
	if err != nil {
		return err
	}
	defer node.Close()
	g, err := gateway.New(ctx, gateway.Config{Conn: node.Conn, StoreError: node.StoreError, Logger: logger})
	if err != nil {
		return err
	}
	server := &park.HTTPServer{
		Server: &http.Server{Handler: g},
		HTTP2:  &http2.Server{ExtendedConnect: true}, // for WebSockets
	}
	ended, shut := make(chan error, 1), make(chan error, 1)
	go func() { ended <- server.ListenAndServeTLS("cert.pem", "key.pem") }()
	select {
	case err = <-ended:
		g.Close()
		return err
	case <-ctx.Done():
	}
	g.Drain(context.Background(), 5*time.Second)
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() { shut <- server.Shutdown(limit) }()
	return cmp.Or(g.Shutdown(limit), <-shut)
}
