package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// Requests are resumed, time out, and lose their clients, while the server is shut down and replaced
// repeatedly. For each, then runs once.
func TestSuspendStress(t *testing.T) {
	stressHTTP(t, func(h *httpStress) {
		s := &suspendStress{httpStress: h}
		server := &HTTPServer{EndSuspended: rand.IntN(3) == 0, Server: &http.Server{Handler: s}}
		life := time.Duration(100+rand.IntN(400)) * time.Millisecond
		s.serve(server, life, s.runClient, func() error { return endInAWay(server) })
		await.Until(s.t, "then has run for all", func() bool { return s.registers.Load() == s.thens.Load() })
		s.resumers.Wait()
		if st := server.Stats(); st.Suspended != 0 || st.SuspendedBytes != 0 || st.Blocked != 0 {
			s.t.Errorf("%+v", st)
		}
	})
}

type suspendStress struct {
	*httpStress
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
	err := SuspendWith(w, r, o, register, func(w http.ResponseWriter, r *http.Request, _ *Suspended) {
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

// endInAWay ends a server in one of several ways.
func endInAWay(server *HTTPServer) error {
	ctx, stop := context.WithTimeout(context.Background(), conntest.Timeout)
	defer stop()
	switch rand.IntN(4) {
	case 0:
		return server.Close()
	case 1:
		return server.Server.Shutdown(ctx)
	}
	return server.Shutdown(ctx)
}

// runClient sends requests, one after the other or several at once, and leaves in a random way.
func (s *suspendStress) runClient(_ context.Context, raw net.Conn) {
	conn := raw
	if s.secure {
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
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
