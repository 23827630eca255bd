package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
)

// Requests are resumed, time out, and lose their clients, while the server is shut down and replaced
// repeatedly. For each, then runs once.
func TestSuspendStress(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
				s := &suspendStress{t: t, backend: backend, cert: certificate(t)}
				for end := time.Now().Add(stressDuration(t)); time.Now().Before(end) && !t.Failed(); {
					s.runServer(secure)
				}
			})
		}
	})
}

type suspendStress struct {
	t       *testing.T
	backend string
	cert    tls.Certificate

	resumers  sync.WaitGroup
	registers atomic.Int64
	thens     atomic.Int64
}

// ServeHTTP makes a request wait, and has it resumed in a random way.
func (s *suspendStress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("Name")
	o := SuspendOptions{HalfClose: rand.IntN(2) == 0}
	if rand.IntN(2) == 0 {
		o.Timeout = time.Duration(1+rand.IntN(300)) * time.Millisecond
	}
	var runs atomic.Int64
	register := func(q *Suspended) {
		s.registers.Add(1)
		switch rand.IntN(8) {
		case 0:
			q.Resume()
		case 1:
			if o.Timeout == 0 && o.HalfClose {
				break
			}
			return // the timeout, the client or Shutdown ends it
		}
		for range 1 + rand.IntN(2) {
			s.resumers.Go(func() {
				await.UpTo(3 * time.Millisecond)
				q.Resume()
			})
		}
	}
	err := SuspendWith(w, r, o, register, func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) != 1 {
			s.t.Error("then runs again")
		}
		defer s.thens.Add(1)
		if got := r.Header.Get("Name"); got != name {
			s.t.Errorf("then has the request %s, want %s", got, name)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", name, body)
	})
	if err != nil {
		io.WriteString(w, "failed")
	}
	if rand.IntN(4) == 0 {
		await.UpTo(time.Millisecond)
	}
}

// runServer runs a server until it is shut down.
func (s *suspendStress) runServer(secure bool) {
	before := handles.List()
	states := &httpStress{t: s.t, states: make(map[net.Conn][]http.ConnState)} // verifies their order
	server := &HTTPServer{Backend: s.backend, EndSuspended: rand.IntN(3) == 0, Server: &http.Server{
		Handler: s, ErrorLog: log.New(io.Discard, "", 0), ConnState: states.changed,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{s.cert}},
	}}
	server.Linger = []time.Duration{-1, time.Microsecond, time.Millisecond}[rand.IntN(3)]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	ln = acceptor{ln}
	served := make(chan error, 1)
	go func() {
		if secure {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	life := time.Duration(100+rand.IntN(400)) * time.Millisecond
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
				s.runClient(conn, secure)
			}
		})
	}
	if rand.IntN(2) == 0 {
		<-ctx.Done()
	} else {
		await.UpTo(100 * time.Millisecond) // shut down while clients are connected
	}
	s.end(server)
	wantErr(s.t, receive(s.t, served), http.ErrServerClosed)
	cancel()
	clients.Wait()
	waitFor(s.t, "all closed, and so all handlers have returned", states.closed)
	waitFor(s.t, "then has run for all", func() bool { return s.registers.Load() == s.thens.Load() })
	s.resumers.Wait()
	if st := server.Stats(); st.Suspended != 0 || st.SuspendedBytes != 0 || st.Blocked != 0 {
		s.t.Errorf("%+v", st)
	}
	handles.Settle(s.t, before, timeout)
}

// end ends a server in one of several ways.
func (s *suspendStress) end(server *HTTPServer) {
	end, stop := context.WithTimeout(context.Background(), timeout)
	defer stop()
	var err error
	switch rand.IntN(4) {
	case 0:
		err = server.Close()
	case 1:
		err = server.Server.Shutdown(end)
	default:
		err = server.Shutdown(end)
	}
	if err != nil {
		s.t.Errorf("the end: %v", err)
	}
}

// runClient sends requests, one after the other or several at once, and leaves in a random way.
func (s *suspendStress) runClient(raw net.Conn, secure bool) {
	defer raw.Close()
	conn := raw
	if secure {
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	conn.SetDeadline(time.Now().Add(2 * timeout))
	in := bufio.NewReader(conn)
	for range 1 + rand.IntN(5) {
		var text strings.Builder
		var want []string
		for range 1 + rand.IntN(3) {
			name, body := fmt.Sprint(rand.Int64()), strings.Repeat("x", rand.IntN(2000))
			text.WriteString(request("POST", "/poll", "Name: "+name,
				fmt.Sprint("Content-Length: ", len(body))) + body)
			want = append(want, name+" "+body)
		}
		if sendInPieces(conn, text.String()) != nil {
			return
		}
		switch rand.IntN(10) {
		case 0:
			return
		case 1:
			raw.(*net.TCPConn).SetLinger(0)
			return
		case 2:
			raw.(*net.TCPConn).CloseWrite()
		}
		for _, w := range want {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if string(body) != w {
				s.t.Errorf("got %.40q, want %.40q", body, w)
				return
			}
		}
	}
}
