package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// Clients send requests in pieces, pipelined or not, with pauses, and disconnect, while the server is shut down and
// replaced repeatedly.
func TestHTTPStress(t *testing.T) {
	stressHTTP(t, func(s *httpStress) {
		server := &HTTPServer{Server: &http.Server{Handler: httpcorpus.Handler()}}
		if rand.IntN(3) == 0 {
			server.Server.IdleTimeout = time.Duration(5+rand.IntN(100)) * time.Millisecond
		}
		life := time.Duration(300+rand.IntN(500)) * time.Millisecond
		s.serve(server, life, s.runClient, func() error {
			ctx, stop := context.WithTimeout(context.Background(), conntest.Timeout)
			defer stop()
			return server.Shutdown(ctx)
		})
	})
}

// stressHTTP runs servers one after the other on every backend, with TLS and without.
func stressHTTP(t *testing.T, runServer func(s *httpStress)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
				s := &httpStress{t: t, backend: backend, secure: secure, cert: conntest.Certificate(t)}
				for end := time.Now().Add(conntest.StressDuration(t)); time.Now().Before(end) && !t.Failed(); {
					runServer(s)
				}
			})
		}
	})
}

type httpStress struct {
	t       *testing.T
	backend string
	secure  bool
	cert    tls.Certificate

	mu     sync.Mutex
	states map[net.Conn][]http.ConnState
}

// follows maps each state to the states that may follow it.
var follows = map[http.ConnState][]http.ConnState{
	http.StateNew:    {http.StateActive, http.StateClosed},
	http.StateActive: {http.StateIdle, http.StateClosed, http.StateHijacked},
	http.StateIdle:   {http.StateActive, http.StateClosed},
}

func (s *httpStress) changed(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.states[conn]
	if len(was) == 0 && state != http.StateNew ||
		len(was) > 0 && !slices.Contains(follows[was[len(was)-1]], state) {
		s.t.Errorf("%v after %v", state, was)
	}
	s.states[conn] = append(was, state)
}

func (s *httpStress) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, states := range s.states {
		if last := states[len(states)-1]; last != http.StateClosed && last != http.StateHijacked {
			return false
		}
	}
	return true
}

// serve runs a server for its life or a shorter time, and ends it. client uses a connection until
// the context is done.
func (s *httpStress) serve(
	server *HTTPServer, life time.Duration, client func(context.Context, net.Conn), end func() error,
) {
	before := handles.List()
	s.states = make(map[net.Conn][]http.ConnState)
	server.Backend = s.backend
	server.Server.ErrorLog, server.Server.ConnState = log.New(io.Discard, "", 0), s.changed
	server.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{s.cert}}
	server.Linger = []time.Duration{-1, time.Microsecond, time.Millisecond}[rand.IntN(3)]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(s.t, err)
	ln = acceptor{ln}
	served := make(chan error, 1)
	go func() {
		if s.secure {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	ctx, cancel := context.WithTimeout(s.t.Context(), life)
	defer cancel()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil && !s.t.Failed() {
				conn, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					return // the server is shut down
				}
				client(ctx, conn)
				conn.Close()
			}
		})
	}
	if rand.IntN(2) == 0 {
		<-ctx.Done() // otherwise the server is shut down while clients are connected
	} else {
		await.UpTo(100 * time.Millisecond)
	}
	if err := end(); err != nil {
		s.t.Errorf("the end: %v", err)
	}
	check.Is(s.t, await.Value(s.t, served), http.ErrServerClosed)
	cancel()
	clients.Wait()
	await.Until(s.t, "all closed, and so all handlers have returned", s.closed)
	handles.Settle(s.t, before, conntest.Timeout)
}

// An acceptor retries when Accept fails because of the connection, as happens under Wine.
type acceptor struct{ net.Listener }

func (a acceptor) Accept() (net.Conn, error) {
	const notConnected = syscall.Errno(10057)
	for {
		c, err := a.Listener.Accept()
		if !errors.Is(err, notConnected) || !wine.FailsAccept.Here() {
			return c, err
		}
	}
}

// runClient sends requests on conn, a random number of times or until the server closes it.
func (s *httpStress) runClient(ctx context.Context, conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		defer conn.Close()
	}
	in := bufio.NewReader(conn)
	for n := rand.IntN(30); n > 0 && ctx.Err() == nil; n-- {
		conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
		var text strings.Builder
		var want []string
		for range 1 + rand.IntN(3) {
			if rand.IntN(2) == 0 {
				text.WriteString(hello)
				want = append(want, "hello\n")
				continue
			}
			body := strings.Repeat("x", rand.IntN(6000))
			fmt.Fprintf(&text, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			want = append(want, fmt.Sprintf("%d <nil> %s map[]\n", len(body), body))
		}
		if err := sendInPieces(conn, text.String()); err != nil {
			return
		}
		for _, w := range want {
			r, err := http.ReadResponse(in, nil)
			var body []byte
			if err == nil {
				body, err = io.ReadAll(r.Body)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.t.Errorf("no answer to %d requests", len(want))
			}
			if err != nil {
				return
			}
			if string(body) != w {
				s.t.Errorf("%.40q, want %.40q", body, w)
				return
			}
		}
		if rand.IntN(3) == 0 {
			await.UpTo(5 * time.Millisecond)
		}
	}
	if rand.IntN(3) == 0 {
		conn.Write([]byte(hello[:rand.IntN(len(hello))])) // then disconnect
	}
}

// sendInPieces sends text in random pieces.
func sendInPieces(conn net.Conn, text string) error {
	for len(text) > 0 {
		n := len(text)
		switch rand.IntN(4) {
		case 0:
			n = min(n, 1+rand.IntN(5))
		case 1:
			n = 1 + rand.IntN(n)
		}
		if _, err := io.WriteString(conn, text[:n]); err != nil {
			return err
		}
		if text = text[n:]; rand.IntN(2) == 0 {
			await.UpTo(1500 * time.Microsecond)
		}
	}
	return nil
}
