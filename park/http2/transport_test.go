package http2

//lint:file-ignore SA1019 the client is deprecated, and programs use it

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// http2.Transport of golang.org/x/net sends many bodies with trailers at once, the connection is parked, and the next ones use
// the same connection.
func TestTransport(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		s := &Server{Linger: -1, Server: handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Address", r.RemoteAddr)
			w.Header().Set("Trailer", "Sum")
			n, err := io.Copy(w, r.Body)
			w.Header().Set("Sum", fmt.Sprint(n, err, r.Trailer.Get("Mine")))
		})}
		url := serve(t, s, secure)
		_, trust := certificate()
		tr := &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}
		if !secure {
			tr.AllowHTTP = true
			tr.DialTLSContext = func(_ context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
				return net.Dial(network, address)
			}
		}
		defer tr.CloseIdleConnections()
		var mu sync.Mutex
		addresses := make(map[string]int)
		ask := func(size int) error {
			body := pattern(size)
			r, err := http.NewRequest("PUT", url, io.MultiReader(bytes.NewReader(body)))
			if err != nil {
				return err
			}
			r.Trailer = http.Header{"Mine": {"x"}}
			resp, err := (&http.Client{Transport: tr, Timeout: timeout}).Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			mu.Lock()
			addresses[resp.Header.Get("Address")]++
			mu.Unlock()
			if want := fmt.Sprint(size, " <nil>x"); err != nil || !bytes.Equal(got, body) || resp.Trailer.Get("Sum") != want {
				return fmt.Errorf("%d bytes, want %d, %v, trailer %q, want %q", len(got), size, err, resp.Trailer, want)
			}
			return nil
		}
		must(t, ask(0))
		for range 3 {
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() {
					if err := ask(i * i * 1000); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
		}
		if len(addresses) != 1 {
			t.Errorf("connections: %v", addresses)
		}
	})
}
