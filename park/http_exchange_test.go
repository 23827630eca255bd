package park

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A talk is one connection to a server, stock or ours, and what was seen of it.
type talk struct {
	t      *testing.T
	conn   net.Conn // the client's
	raw    *counted
	peer   *counted // the server's
	parked func() int
	in     *bufio.Reader
	got    bytes.Buffer // every byte of the server's

	mu     sync.Mutex
	states []http.ConnState
}

func (k *talk) seen() []http.ConnState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]http.ConnState(nil), k.states...)
}

func (k *talk) state() http.ConnState {
	s := k.seen()
	if len(s) == 0 {
		return -1
	}
	return s[len(s)-1]
}

// counted counts what a connection has read and written.
type counted struct {
	net.Conn
	read, written atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *counted) NetConn() net.Conn { return c.Conn }

func (c *counted) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// A step is what the client does next.
type step func(*talk)

// send sends.
func sends(text string) step {
	return func(k *talk) {
		if _, err := io.WriteString(k.conn, text); err != nil {
			k.t.Fatal(err)
		}
	}
}

// part sends, and waits until the server has read it.
func part(text string) step {
	return func(k *talk) {
		sends(text)(k)
		until(k.t, "the server reads", func() bool { return k.peer.read.Load() == k.raw.written.Load() })
	}
}

// answers reads responses to requests of a method.
func answers(method string, n int) step {
	return func(k *talk) {
		for range n {
			r, err := http.ReadResponse(k.in, &http.Request{Method: method})
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err != nil {
				k.t.Fatalf("%v, after %q", err, k.got.String())
			}
		}
	}
}

// rest waits until the connection is idle, and parked if the server does that.
func rest(k *talk) {
	until(k.t, "idle", func() bool { return k.state() == http.StateIdle })
	if k.parked != nil {
		until(k.t, "parked", func() bool { return k.parked() == 1 })
	}
}

// half closes the client's end for writing.
func half(k *talk) { k.conn.(interface{ CloseWrite() error }).CloseWrite() }

// shut closes it altogether.
func shut(k *talk) { k.conn.Close() }

// reset aborts the connection.
func reset(k *talk) {
	k.raw.Conn.(*net.TCPConn).SetLinger(0)
	k.raw.Conn.Close()
}

// toTheEnd reads until the server closes.
func toTheEnd(k *talk) { io.Copy(io.Discard, k.in) }

var dates = regexp.MustCompile(`(?m)^Date: .*\r$`)

// A rig is a server that talks are had with, one after the other.
type rig struct {
	address string
	secure  bool
	parked  func() int
	serves  chan *counted

	mu  sync.Mutex
	now *talk
}

// Accept counts for the talk that is had. It is the listener's.
type countingListener struct {
	net.Listener
	rig *rig
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: conn}
	l.rig.serves <- c
	return c, nil
}

// newRig serves with net/http, or with ours and a linger.
func newRig(t *testing.T, secure, ours bool, backend string, linger time.Duration, set func(*http.Server)) *rig {
	t.Helper()
	r := &rig{secure: secure, serves: make(chan *counted, 1)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.address = ln.Addr().String()
	srv := &http.Server{
		Handler:  exchangeHandler(),
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, new(atomic.Int64))
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			r.mu.Lock()
			k := r.now
			r.mu.Unlock()
			k.mu.Lock()
			defer k.mu.Unlock()
			k.states = append(k.states, state)
			if k.states[0] != http.StateNew {
				t.Errorf("the first state is %v", state)
			}
			_, isTLS := conn.(*tls.Conn)
			if _, plain := conn.(*counted); isTLS != secure || plain == secure {
				t.Errorf("ConnState is given a %T", conn)
			}
		},
	}
	if secure {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	}
	if set != nil {
		set(srv)
	}
	serve, serveTLS, shutdown := srv.Serve, srv.ServeTLS, srv.Shutdown
	if ours {
		s := &HTTPServer{Server: srv, Linger: linger, Backend: backend}
		serve, serveTLS, shutdown = s.Serve, s.ServeTLS, s.Shutdown
		if linger < 0 {
			r.parked = s.Parked
		}
	}
	served := make(chan error, 1)
	go func() {
		if secure {
			served <- serveTLS(countingListener{ln, r}, "", "")
		} else {
			served <- serve(countingListener{ln, r})
		}
	}()
	t.Cleanup(func() {
		must(t, shutdown(context.Background()))
		wantErr(t, get(t, served), http.ErrServerClosed)
	})
	return r
}

type connKey struct{}

// talk has a talk and returns what was said, and the states.
func (r *rig) talk(t *testing.T, steps []step) (string, []http.ConnState) {
	t.Helper()
	k := &talk{t: t, parked: r.parked}
	r.mu.Lock()
	r.now = k
	r.mu.Unlock()
	conn, err := net.Dial("tcp", r.address)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * soon))
	k.raw = &counted{Conn: conn}
	k.conn = k.raw
	k.peer = get(t, r.serves)
	if r.secure {
		c := tls.Client(k.raw, &tls.Config{InsecureSkipVerify: true})
		must(t, c.Handshake())
		k.conn = c
	}
	k.in = bufio.NewReader(io.TeeReader(k.conn, &k.got))
	for _, do := range steps {
		do(k)
	}
	half(k)
	toTheEnd(k)
	k.conn.Close()
	until(t, "the last state", func() bool {
		s := k.state()
		return s == http.StateClosed || s == http.StateHijacked
	})
	return dates.ReplaceAllString(k.got.String(), "Date: then\r"), k.seen()
}

// exchangeHandler is what requests are for.
func exchangeHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request)) {
		mux.HandleFunc(pattern, f)
	}
	handle("/hello", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	handle("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = os.ErrDeadlineExceeded // without addresses
		}
		fmt.Fprintf(w, "%d %v %s %v\n", len(body), err, body, r.Trailer)
	})
	handle("/ignore", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted) })
	handle("/stream", func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "part %d\n", i)
			http.NewResponseController(w).Flush()
		}
	})
	handle("/trailer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.WriteString(w, "body")
		w.Header().Set("Sum", "4")
	})
	handle("/empty", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handle("/same", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) })
	handle("/close", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "bye\n")
	})
	handle("/big", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "300000")
		io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("0123456789", 30000)), 300000))
	})
	handle("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	handle("/short", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "four")
	})
	handle("/conn", func(w http.ResponseWriter, r *http.Request) {
		n := r.Context().Value(connKey{}).(*atomic.Int64).Add(1)
		_, port, _ := net.SplitHostPort(r.RemoteAddr)
		local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		srv := r.Context().Value(http.ServerContextKey).(*http.Server)
		fmt.Fprintf(w, "request %d of it, tls %v, %t %s %t\n", n,
			r.TLS != nil && r.TLS.HandshakeComplete && r.TLS.NegotiatedProtocol == "",
			port != "", local.Network(), srv != nil)
	})
	handle("/early", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.WriteString(w, "before\n")
		http.NewResponseController(w).Flush()
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v\n", body, err)
	})
	handle("/deadline", func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		fmt.Fprintln(w, c.SetReadDeadline(time.Now().Add(time.Hour)), c.SetWriteDeadline(time.Now().Add(time.Hour)))
	})
	hijack := func(w http.ResponseWriter, answer string) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		defer conn.Close()
		rw.WriteString(answer)
		rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				fmt.Fprintf(conn, "the end: %v", err)
				return
			}
			fmt.Fprintf(conn, "you said %s", line)
		}
	}
	handle("/hijack", func(w http.ResponseWriter, r *http.Request) { hijack(w, "raw from here\n") })
	handle("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		hijack(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
	})
	return mux
}
