package tunnel

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync/atomic"
)

// ReverseProxy returns a handler that does what p does, and joins upgraded connections, such as
// those of WebSocket, in tunnels: the handler then returns, and an idle one needs no goroutine and
// no buffer. The first connection of a tunnel is the client's.
//
// It works with Director, Rewrite, ModifyResponse, Transport and ErrorHandler as they are. p is
// copied; later changes of it have no effect. A tunnel begins when the proxy would begin to copy,
// after ModifyResponse and the response's head, and only if the whole body of the request was sent
// to the backend: otherwise it is an error for ErrorHandler. An upgraded connection is left to the proxy's own
// copying, and counted in Stats.Copied, if the body of the response is not net/http's own: a
// Transport or ModifyResponse has wrapped it, and must see the bytes. A connection that a
// middleware's Hijack method has wrapped is read and written through the wrapper, as [Lot.Park]
// describes.
//
// Requests are passed on without offers to go on with HTTP on the same connection (see
// [Tunnels.UpgradeToHTTP]).
//
// What differs from the proxy's own copying: bytes that a client sends before it has the answer are
// passed on; hop-by-hop headers of a response with status 101 are not, but Connection and Upgrade;
// when a connection fails, the other one is reset (see [Tunnels.Join]); and a tunnel
// does not end with the context of its request, because its handler has returned. Beyond MaxConns,
// and after Shutdown, a connection is not upgraded: the proxy closes that to the backend, and answers
// with the status 503, or calls ErrorHandler with ErrMaxConns or ErrServerClosed.
func (g *Tunnels) ReverseProxy(p *httputil.ReverseProxy) http.Handler {
	own := *p
	own.ModifyResponse = func(r *http.Response) error {
		if p := p.ModifyResponse; p != nil {
			if err := p(r); err != nil {
				return err
			}
		}
		if r.StatusCode == http.StatusSwitchingProtocols {
			dropHopByHop(r.Header)
			g.intercept(r.Request.Context(), r)
			if u, ok := r.Request.Context().Value(upgradeKey{}).(*upgrade); ok {
				u.response = r.Body
			}
		}
		return nil
	}
	if handle := p.ErrorHandler; handle != nil {
		own.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
			if u, ok := w.(*upgradeWriter); ok {
				w, err = u.ResponseWriter, cmp.Or(u.of.refused, err)
			}
			handle(w, r, err)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.UpgradeToHTTP {
			if slices.ContainsFunc(r.Header[":protocol"], offersHTTP) {
				refuse(w, http.StatusNotImplemented)
				return
			}
			r = withoutHTTPUpgrade(r)
		}
		if isUpgrade(r) {
			u := &upgrade{in: g, strict: true}
			defer u.endReverseProxy()
			w, r = u.wrap(w, r)
			if r.ContentLength != 0 {
				u.request = &trackedBody{ReadCloser: r.Body}
				r.Body = u.request
			}
		}
		own.ServeHTTP(w, r)
	})
}

// endReverseProxy is close for a ReverseProxy, which leaves the backend's connection open if it refuses the response. If
// there is a tunnel, Close does nothing.
func (u *upgrade) endReverseProxy() {
	u.close()
	if u.response != nil {
		u.response.Close()
	}
}

// A trackedBody is a body of a request that knows when it was read whole. The backend may answer
// before that; what the client sends then is not of the new protocol (RFC 9110, 7.8).
type trackedBody struct {
	io.ReadCloser
	whole atomic.Bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}
