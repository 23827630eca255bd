package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A logged records what is logged, without addresses and stacks.
type logged struct {
	mu    sync.Mutex
	lines []string
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, _, _ := strings.Cut(string(p), "\n")
	l.lines = append(l.lines, address.ReplaceAllString(line, "client"))
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("logged %q", l.lines)
}

// rest returns descriptions of n frames, or of those until the end.
func (p *peer) rest(n int) (all string) {
	p.t.Helper()
	must(p.t, p.send())
	for f := ""; n > 0 && f != "the end"; n-- {
		f = p.next()
		all += f + "; "
	}
	return all
}

// A client of TestSettings is connected to a server of net/http or of park.
type settingsClient struct {
	*peer
	url    string
	server httpServer
	log    *logged
}

// logs waits until something is logged.
func (c settingsClient) logs() {
	until(c.t, "something is logged", func() bool { return c.log.String() != new(logged).String() })
}

// The settings of an http.Server do the same with park.HTTPServer and HTTP2 as with net/http. TestHooks has BaseContext,
// ConnContext and ConnState, and TestHTTPServerEnds Shutdown.
func TestSettings(t *testing.T) {
	// The first three timeouts hold for the TLS handshake too, so that a short one would fail on a busy machine.
	const short, idle = 2 * time.Second, time.Second
	readTimeout := func(hs *http.Server, _ *logged) { hs.ReadTimeout, hs.IdleTimeout = short, timeout }
	var all sync.WaitGroup
	for _, c := range []struct {
		name string
		set  func(hs *http.Server, log *logged)
		ask  func(c settingsClient) string
	}{
		{"ReadTimeout", readTimeout,
			func(c settingsClient) string {
				c.open(1, "/read", false)
				return c.rest(3)
			}},
		{"ReadTimeout and a part of the body", readTimeout,
			func(c settingsClient) string {
				c.open(1, "/read", false)
				c.WriteData(1, false, []byte("part"))
				return c.rest(3)
			}},
		{"ReadTimeout, and the whole body", readTimeout,
			func(c settingsClient) string {
				c.open(1, "/late", false)
				c.WriteData(1, true, []byte("whole"))
				return c.rest(2)
			}},
		{"ReadTimeout of an idle connection", func(hs *http.Server, _ *logged) { hs.ReadTimeout = short }, idleFrames},
		{"IdleTimeout", func(hs *http.Server, _ *logged) { hs.IdleTimeout = idle }, idleFrames},
		{"IdleTimeout before ReadTimeout", func(hs *http.Server, _ *logged) {
			hs.ReadTimeout, hs.IdleTimeout = timeout, idle
		}, idleFrames},
		{"IdleTimeout and a stream", func(hs *http.Server, _ *logged) { hs.IdleTimeout = idle },
			func(c settingsClient) string {
				c.open(1, "/read", false)
				must(c.t, c.send())
				time.Sleep(idle + idle/2) // net/http's time is real
				c.WriteData(1, true, []byte("x"))
				return c.rest(2)
			}},
		{"ReadHeaderTimeout of a silent client", func(hs *http.Server, _ *logged) { hs.ReadHeaderTimeout = short },
			func(c settingsClient) string {
				if strings.HasPrefix(c.url, "https:") {
					return "" // ten seconds, in both
				}
				conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
				must(c.t, err)
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(timeout))
				b, err := io.ReadAll(conn)
				return fmt.Sprintf("%q %v", b, err)
			}},
		{"ReadHeaderTimeout and a body", func(hs *http.Server, _ *logged) { hs.ReadHeaderTimeout = short },
			func(c settingsClient) string {
				c.open(1, "/read", false)
				c.WriteData(1, false, []byte("a"))
				must(c.t, c.send())
				time.Sleep(short + idle/4) // likewise
				c.WriteData(1, true, []byte("b"))
				return c.rest(2)
			}},
		{"WriteTimeout and no window", func(hs *http.Server, _ *logged) { hs.WriteTimeout = short },
			func(c settingsClient) string {
				c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				c.open(1, "/", true)
				return c.rest(2)
			}},
		{"WriteTimeout and a slow handler", func(hs *http.Server, _ *logged) { hs.WriteTimeout = short },
			func(c settingsClient) string {
				c.open(1, "/wait", true)
				return c.rest(1)
			}},
		{"MaxHeaderBytes", func(hs *http.Server, _ *logged) { hs.MaxHeaderBytes = 1000 },
			func(c settingsClient) (all string) {
				for i := range 200 { // the limit is 1,320 bytes, with 32 for each field
					c.open(id(i), "/", true, "a", strings.Repeat("x", 1000+i))
					all += strings.TrimPrefix(c.rest(1), fmt.Sprint(id(i)))
					c.next()
				}
				return all
			}},
		{"DisableGeneralOptionsHandler", func(hs *http.Server, _ *logged) {
			hs.DisableGeneralOptionsHandler = true
		}, options},
		{"the general handler of OPTIONS", func(*http.Server, *logged) {}, options},
		{"RegisterOnShutdown", func(hs *http.Server, log *logged) {
			hs.RegisterOnShutdown(func() { log.Write([]byte("shutdown")) })
		}, func(c settingsClient) string {
			c.open(1, "/", true)
			all := c.rest(2)
			must(c.t, c.server.Shutdown(c.t.Context()))
			c.logs()
			return all + c.rest(2)
		}},
		{"ErrorLog", func(*http.Server, *logged) {}, func(c settingsClient) string {
			c.open(1, "/panic", true)
			c.open(3, "/abort", true)
			both := []string{c.rest(1), c.rest(1)}
			slices.Sort(both)
			c.logs()
			return fmt.Sprint(both)
		}},
		{"SetKeepAlivesEnabled before the request", func(*http.Server, *logged) {}, func(c settingsClient) string {
			c.server.SetKeepAlivesEnabled(false)
			p := dial(c.t, c.url)
			p.open(1, "/", true)
			return p.rest(4)
		}},
		{"SetKeepAlivesEnabled in a request", func(*http.Server, *logged) {}, func(c settingsClient) string {
			c.open(1, "/read", false)
			c.synced()
			c.server.SetKeepAlivesEnabled(false)
			c.WriteData(1, true, nil)
			return c.rest(4)
		}},
	} {
		for _, secure := range []bool{false, true} {
			all.Go(func() {
				ask := func(wrap func(hs *http.Server) httpServer) chan string {
					answer := make(chan string, 1)
					go func() {
						defer close(answer)
						hs, log1 := handler(settingsHandler), new(logged)
						hs.ErrorLog = log.New(log1, "", 0)
						c.set(hs, log1)
						s := wrap(hs)
						url, _ := start(t, s, hs, secure)
						answer <- c.ask(settingsClient{dial(t, url), url, s, log1}) + log1.String()
					}()
					return answer
				}
				theirs := ask(func(hs *http.Server) httpServer { return hs })
				ours := ask(func(hs *http.Server) httpServer { return parked(hs) })
				got, want := <-ours, <-theirs
				if got != want {
					t.Errorf("%s, TLS %t:\ngot  %s\nwant %s", c.name, secure, got, want)
				}
				if *soak > 0 {
					t.Logf("%s, TLS %t: %s", c.name, secure, want)
				}
			})
		}
	}
	all.Wait()
}

func settingsHandler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/read":
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %t %v", b, errors.Is(err, os.ErrDeadlineExceeded), err == nil)
	case "/late":
		time.Sleep(2100 * time.Millisecond) // past ReadTimeout, in net/http's real time
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", b, err)
	case "/wait":
		<-r.Context().Done()
		if err := context.Cause(r.Context()); err != context.Canceled {
			panic(err)
		}
	case "/panic":
		panic("in the handler")
	case "/abort":
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprint(w, r.Method, r.RequestURI)
	}
}

// idleFrames returns what a client receives that sends nothing after a request.
func idleFrames(c settingsClient) string {
	c.open(1, "/", true)
	return c.rest(4)
}

// options returns the answers to OPTIONS with and without a path.
func options(c settingsClient) (all string) {
	for i, path := range []string{"*", "/x"} {
		c.openPart(id(i), false, true, ":method", "OPTIONS", ":scheme", "http", ":authority", "x", ":path", path)
		c.WriteData(id(i), true, []byte("body"))
		must(c.t, c.send())
		answer, _ := c.answerTo(id(i))
		all += answer
	}
	return all
}
