package listener

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// newServer returns an HTTPServer for a listener, with the settings and hooks of Caddy's http.Server.
func newServer(of *http.Server, l *listener) *park.HTTPServer {
	s := &park.HTTPServer{Server: settings(of), CryptoTLS: l.config == nil, Name: "caddy " + l.Addr().String()}
	if l.config != nil {
		s.Server.TLSConfig = l.config
	}
	if l.wrapper.has(partHTTP2) {
		s.HTTP2 = &http2.Server{ExtendedConnect: strings.Contains(os.Getenv("GODEBUG"), "http2xconnect=1")} // as x/net/http2, for Caddy
	}
	return s
}

// settings returns a server with the exported fields of another one, which runs. So it has those of later versions of Go, too.
func settings(of *http.Server) *http.Server {
	own := new(http.Server)
	from, to := reflect.ValueOf(of).Elem(), reflect.ValueOf(own).Elem()
	for i := range from.NumField() {
		if from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	own.TLSNextProto = maps.Clone(of.TLSNextProto)
	if of.TLSConfig != nil {
		own.TLSConfig = of.TLSConfig.Clone()
	}
	return own
}

// ending has a channel for each HTTPServer that is shut down, and closes it when that has ended. A process that exits waits for
// those of former configurations, too.
var ending sync.Map

// end shuts an HTTPServer down, without waiting, and then calls ended. There is no time limit: on a reload Caddy's own
// connections have none, and when the process exits, awaitEnded has that of Caddy.
func end(s *park.HTTPServer, ended func()) {
	done := make(chan struct{})
	ending.Store(done, nil)
	go func() {
		s.Shutdown(context.Background())
		ended()
		ending.Delete(done)
		close(done)
	}()
}

// awaitEnded waits until all HTTPServers that are shut down have ended, or ctx is done.
func awaitEnded(ctx context.Context) (err error) {
	ending.Range(func(done, _ any) bool {
		select {
		case <-done.(chan struct{}):
			return true
		case <-ctx.Done():
			err = fmt.Errorf("connections of the wrapper park: %w", context.Cause(ctx))
			return false
		}
	})
	return err
}
