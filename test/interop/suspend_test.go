package interop

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	labstack "github.com/labstack/echo/v4"
	labstackware "github.com/labstack/echo/v4/middleware"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// A statusWriter is as the ResponseWriter of many middlewares, negroni's among them: it writes the
// header after the handler if that has written nothing and has not hijacked the connection.
type statusWriter struct {
	http.ResponseWriter
	written bool
}

func (w *statusWriter) WriteHeader(code int) { w.written = true; w.ResponseWriter.WriteHeader(code) }
func (w *statusWriter) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.written = true
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

func withStatus(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(s, r)
		if !s.written {
			s.WriteHeader(http.StatusOK)
		}
	})
}

// The frameworks, with a handler at GET /next.
var frameworks = map[string]func(http.HandlerFunc) http.Handler{
	"gin": func(h http.HandlerFunc) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Use(gin.LoggerWithWriter(io.Discard), gin.RecoveryWithWriter(io.Discard))
		router.GET("/next", func(c *gin.Context) { h(c.Writer, c.Request) })
		return router
	},
	"echo": func(h http.HandlerFunc) http.Handler {
		router := labstack.New()
		router.Use(labstackware.Recover(), labstackware.RequestID())
		router.GET("/next", func(c labstack.Context) error { h(c.Response(), c.Request()); return nil })
		return router
	},
	"chi": func(h http.HandlerFunc) http.Handler {
		router := chi.NewRouter()
		router.Use(middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)}),
			middleware.Recoverer, middleware.Compress(5))
		router.Get("/next", h)
		return router
	},
	"a status writer": func(h http.HandlerFunc) http.Handler { return withStatus(h) },
	"gin in a status writer": func(h http.HandlerFunc) http.Handler {
		router := gin.New()
		router.GET("/next", func(c *gin.Context) { h(c.Writer, c.Request) })
		return withStatus(router)
	},
}

// What is around the handler of a request that waits does not write when the handler has returned:
// each ResponseWriter knows that the connection was taken over, and net/http logs nothing.
func TestSuspendFrameworks(t *testing.T) {
	for name, wrap := range frameworks {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/1.1, TLS", "HTTP/2"} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				var logged lockedBuffer
				waits := make(chan *park.Suspended, 10)
				server := park.HTTPServer{Server: &http.Server{ErrorLog: log.New(&logged, "", 0), Protocols: new(http.Protocols)}}
				server.Server.Protocols.SetHTTP1(protocol != "HTTP/2")
				server.Server.Protocols.SetHTTP2(protocol == "HTTP/2")
				server.Server.Handler = wrap(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Test", "set")
					err := park.Suspend(w, r, func(q *park.Suspended) { waits <- q }, func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) {
						w.WriteHeader(http.StatusAccepted)
						fmt.Fprint(w, "answer to ", r.URL.Path)
					})
					if err != nil {
						t.Error(err)
					}
				})
				ln := listen(t)
				transport := &http.Transport{ForceAttemptHTTP2: protocol == "HTTP/2"}
				scheme, serve := "http", server.Serve
				if protocol != "HTTP/1.1" {
					server.HTTP2 = &http2.Server{}
					cert, pool, err := selfcert.New(24*time.Hour, "127.0.0.1")
					must(t, err)
					server.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
					transport.TLSClientConfig = &tls.Config{RootCAs: pool}
					scheme, serve = "https", func(ln net.Listener) error { return server.ServeTLS(ln, "", "") }
				}
				served := make(chan error, 1)
				go func() { served <- serve(ln) }()
				client := &http.Client{Transport: transport}
				answers := make(chan string, 10)
				for n := range 3 {
					go func() {
						res, err := client.Get(fmt.Sprintf("%s://%s/next", scheme, ln.Addr()))
						if err != nil {
							answers <- err.Error()
							return
						}
						defer res.Body.Close()
						text, _ := io.ReadAll(res.Body)
						answers <- fmt.Sprintf("%d %s HTTP/%d %s", res.StatusCode, res.Header.Get("X-Test"), res.ProtoMajor, text)
					}()
					await.Until(t, "it waits without a goroutine", func() bool {
						st := server.Stats()
						return st.Suspended == n+1 && st.Blocked == 0 && st.Parked > n
					})
				}
				for range 3 {
					(<-waits).Resume()
				}
				want := "202 set HTTP/1 answer to /next"
				if protocol == "HTTP/2" {
					want = "202 set HTTP/2 answer to /next"
				}
				for range 3 {
					if got := await.Receive(t, "an answer", answers); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				}
				client.CloseIdleConnections()
				must(t, server.Shutdown(context.Background()))
				if err := <-served; err != http.ErrServerClosed {
					t.Error(err)
				}
				if text := logged.String(); text != "" {
					t.Errorf("logged %q", text)
				}
			})
		}
	}
}
