package interop

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/NYTimes/gziphandler"
	gingzip "github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"
	"github.com/klauspost/compress/gzhttp"
	labstack "github.com/labstack/echo/v4"
	labstackware "github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/cors"
	"github.com/urfave/negroni/v3"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// A middlewareRow is a middleware of the table in docs/suspend.md.
type middlewareRow struct {
	name   string // as in the table
	blocks bool   // the request waits in its goroutine
	logs   string // a part of the line that is logged before the answer; "" if none is
	wrap   func(h http.Handler, logged io.Writer) http.Handler
}

var middlewares = []middlewareRow{
	{"http.TimeoutHandler", true, "", func(h http.Handler, _ io.Writer) http.Handler {
		return http.TimeoutHandler(h, time.Hour, "late")
	}},
	{"echo's Timeout", true, "", func(h http.Handler, _ io.Writer) http.Handler {
		//lint:ignore SA1019 it is deprecated, and in use
		return echoWith(h, labstackware.TimeoutWithConfig(labstackware.TimeoutConfig{Timeout: time.Hour}))
	}},
	{"echo's ContextTimeout", false, "", func(h http.Handler, _ io.Writer) http.Handler {
		return echoWith(h, labstackware.ContextTimeout(time.Hour))
	}},
	{"gin-contrib's gzip", true, "", func(h http.Handler, _ io.Writer) http.Handler {
		return ginWith(h, gingzip.Gzip(gingzip.DefaultCompression))
	}},
	{"gorilla's CompressHandler", true, "", func(h http.Handler, _ io.Writer) http.Handler {
		return handlers.CompressHandler(h)
	}},
	{"NYTimes' gziphandler", true, "", func(h http.Handler, _ io.Writer) http.Handler {
		return gziphandler.GzipHandler(h)
	}},
	{"chi's Logger", false, " - 000 0B in ", func(h http.Handler, logged io.Writer) http.Handler {
		f := &middleware.DefaultLogFormatter{Logger: log.New(logged, "", 0), NoColor: true}
		return middleware.RequestLogger(f)(h)
	}},
	{"chi's Compress", false, "", func(h http.Handler, _ io.Writer) http.Handler { return middleware.Compress(5)(h) }},
	{"chi's Timeout", false, "", func(h http.Handler, _ io.Writer) http.Handler {
		return middleware.Timeout(time.Hour)(h)
	}},
	{"gin's Logger", false, "| 200 |", func(h http.Handler, logged io.Writer) http.Handler {
		return ginWith(h, gin.LoggerWithWriter(logged))
	}},
	{"gorilla's LoggingHandler", false, "\" 200 0\n", func(h http.Handler, logged io.Writer) http.Handler {
		return handlers.LoggingHandler(logged, h)
	}},
	{"negroni's Logger", false, "| 0 |", func(h http.Handler, logged io.Writer) http.Handler {
		l := negroni.NewLogger()
		l.ALogger = log.New(logged, "", 0)
		n := negroni.New(l)
		n.UseHandler(h)
		return n
	}},
	{"otelhttp", false, "", func(h http.Handler, _ io.Writer) http.Handler { return otelhttp.NewHandler(h, "test") }},
	{"promhttp", false, "", func(h http.Handler, _ io.Writer) http.Handler {
		seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds"}, []string{"code"})
		return promhttp.InstrumentHandlerDuration(seconds, h)
	}},
	{"rs/cors", false, "", func(h http.Handler, _ io.Writer) http.Handler { return cors.Default().Handler(h) }},
	{"klauspost's gzhttp", false, "", func(h http.Handler, _ io.Writer) http.Handler { return gzhttp.GzipHandler(h) }},
}

func echoWith(h http.Handler, m ...labstack.MiddlewareFunc) http.Handler {
	e := labstack.New()
	e.Use(m...)
	e.GET("/*", func(c labstack.Context) error { h.ServeHTTP(c.Response(), c.Request()); return nil })
	return e
}

func ginWith(h http.Handler, m ...gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(m...)
	router.GET("/*any", func(c *gin.Context) { h.ServeHTTP(c.Writer, c.Request) })
	return router
}

// Each middleware of the table in docs/suspend.md lets a request wait as the table says, and the client gets the answer
// of then. Its line is logged before the answer.
func TestSuspendMiddleware(t *testing.T) {
	b, err := os.ReadFile("../../docs/suspend.md")
	must(t, err)
	page := strings.Join(strings.Fields(string(b)), " ")
	for _, row := range middlewares {
		if !strings.Contains(page, row.name) {
			t.Errorf("docs/suspend.md does not name %s", row.name)
		}
		t.Run(row.name, func(t *testing.T) { suspendBelow(t, row, false) })
		t.Run(row.name+", HTTP/2", func(t *testing.T) { suspendBelow(t, row, true) })
	}
}

func suspendBelow(t *testing.T, row middlewareRow, second bool) {
	var logged, faults lockedBuffer
	waits := make(chan *park.Suspended, 1)
	answer := strings.Repeat("answer ", 1000) // long enough for those that compress
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := park.Suspend(w, r, func(s *park.Suspended) { waits <- s },
			func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) {
				w.Header().Set("Content-Type", "text/plain")
				io.WriteString(w, answer)
			})
		if err != nil {
			t.Error(err)
		}
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!second)
	protocols.SetUnencryptedHTTP2(second)
	server := park.HTTPServer{HTTP2: new(http2.Server), Server: &http.Server{Handler: row.wrap(h, &logged),
		Protocols: protocols, ErrorLog: log.New(&faults, "", 0)}}
	ln := listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}} // which asks for gzip, and decodes it
	answers := make(chan string, 1)
	go func() {
		res, err := client.Get("http://" + ln.Addr().String() + "/next")
		if err != nil {
			answers <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answers <- string(text)
	}()
	s := await.Receive(t, "a request that waits", waits)
	await.Until(t, "it waits as the table says", func() bool {
		st := server.Stats()
		if row.blocks { // over HTTP/2 the connection is parked nevertheless
			return st.Suspended == 1 && st.Blocked == 1 && (second || st.Parked == 0)
		}
		return st.Suspended == 1 && st.Blocked == 0 && st.Parked > 0
	})
	if text := logged.String(); !strings.Contains(text, row.logs) || (row.logs == "") != (text == "") {
		t.Errorf("logged %q before the answer; want %q", text, row.logs)
	}
	s.Resume()
	if got := await.Receive(t, "an answer", answers); got != answer {
		t.Errorf("got %.40q", got)
	}
	client.CloseIdleConnections()
	must(t, server.Shutdown(context.Background()))
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
	if text := faults.String(); text != "" {
		t.Errorf("net/http says %q", text)
	}
}
