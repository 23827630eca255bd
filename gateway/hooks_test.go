package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/traps"
)

// An Authorize that panics, or calls runtime.Goexit, costs its request: no client is counted, and the
// gateway ends. net/http logs the panic.
func TestAuthorizeTraps(t *testing.T) {
	traps.Each(t, []string{"Authorize"}, func(t *testing.T, p *traps.Trap) {
		s := newSite(t, t.TempDir(), Config{Logger: p.Logger(), Authorize: func(*http.Request) (Grant, error) {
			p.Call("Authorize")
			return allowAll, nil
		}})
		s.http.Server.ErrorLog.SetOutput(p)
		address := strings.TrimPrefix(s.url, "http://")
		for _, request := range []string{
			"GET /events?topic=a HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /socket?topic=a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
			"POST /publish?topic=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
		} {
			before := p.Sprung()
			conn, err := net.Dial("tcp", address)
			must(t, err)
			conn.SetDeadline(time.Now().Add(readTimeout))
			fmt.Fprint(conn, request)
			_, err = io.ReadAtLeast(conn, make([]byte, 1), 1)
			if cost := !before && p.Sprung(); (err == nil) == cost {
				t.Errorf("%.20q: %v", request, err)
			}
			conn.Close()
		}
		p.Check(t, traps.Server{NetHTTP: true, Conns: func() int { return s.Stats().Conns + s.http.Stats().Conns },
			Panics: func() uint64 { return s.Stats().Panics }, Shutdown: func(context.Context) error { return nil }})
	})
}
