package caddy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/sockettest"
)

const parkWrapper = "listener_wrappers {\npark\n}"

// setups are ways to have upgraded connections parked. $BACKEND is the address of the backend.
var setups = []struct {
	name          string
	secure        bool
	servers, text string
}{
	{"park_upgrades", false, "", "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}"},
	{"park_upgrades, TLS", true, "", "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}"},
	{"transport park in a named route", false, "",
		"&(proxy) {\nreverse_proxy $BACKEND {\ntransport park\n}\n}\n$SITE {\npark_upgrades\ninvoke proxy\n}"},
	{"the wrapper", false, parkWrapper, "&(proxy) {\nreverse_proxy $BACKEND\n}\n$SITE {\ninvoke proxy\n}"},
	{"both lines, TLS", true, parkWrapper, "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}"},
	{"the wrapper without lean_tls, TLS", true, "listener_wrappers {\npark upgrades idle http2\n}", "$SITE {\nreverse_proxy $BACKEND\n}"},
}

// Upgraded connections whose peers send at random moments, from before the answer on, carry all bytes in
// order, and the ends of both streams.
func TestStress(t *testing.T) {
	n := long.Or(2400, 60)
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			failed := make(chan error, 2*n)
			s := newSite(t, c.secure, withBackend(c.text, stressBackend(t, failed)), c.servers)
			before := tunnels.Stats()
			ids := make(chan int)
			var clients sync.WaitGroup
			for range 24 {
				clients.Go(func() {
					for id := range ids {
						if err := stressClient(s, id); err != nil {
							failed <- fmt.Errorf("the client of %d: %w", id, err)
						}
					}
				})
			}
			for id := range n {
				ids <- id
			}
			close(ids)
			clients.Wait()
			await.Until(t, "all have ended", func() bool { return tunnels.Stats().Conns == 0 })
			st := tunnels.Stats()
			if joined := st.Accepted - before.Accepted; joined != uint64(n) || st.Panics != before.Panics {
				t.Errorf("%d tunnels for %d connections, %+v", joined, n, st)
			}
			for len(failed) > 0 {
				t.Error(<-failed)
			}
		})
	}
}

func withBackend(text, address string) string {
	return strings.ReplaceAll(text, "$BACKEND", address)
}

// A script is what a peer of a connection sends: parts of a sequence, after pauses. The other peer knows
// it, too. The first part is sent together with the head of the request or of its answer.
type script []struct {
	size  int
	pause time.Duration
}

func scriptOf(id int, client bool) script {
	side := uint64(0)
	if client {
		side = 1
	}
	r := rand.New(rand.NewPCG(uint64(id), side))
	s := make(script, 1+r.IntN(8))
	for i := range s {
		if s[i].size = r.IntN(4000); r.IntN(10) == 0 {
			s[i].size = 100 << 10
		}
		if r.IntN(2) == 0 {
			s[i].pause = time.Duration(r.IntN(8000)) * time.Microsecond
		}
	}
	if r.IntN(2) == 0 {
		s[0].size = 0
	}
	return s
}

// exchange sends what a peer sends after the first part, and the end of the stream, and verifies what the
// other peer sends. With wait the end is sent when something has come from the other peer: net/http takes
// a client for gone that ends its stream when it has the answer, but Caddy has not hijacked its connection.
func (s script) exchange(conn net.Conn, in *bufio.Reader, other script, wait bool) error {
	sent, came := make(chan error, 1), make(chan struct{})
	if !wait {
		close(came)
	}
	go func() { sent <- s.send(conn, came) }()
	total := 0
	for _, part := range other {
		total += part.size
	}
	conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
	if wait {
		in.Peek(1)
		close(came)
	}
	got, err := io.ReadAll(in)
	if err == nil && !bytes.Equal(got, sockettest.Sequence(0, total)) {
		err = fmt.Errorf("received %d of %d bytes, or others", len(got), total)
	}
	return errors.Join(err, <-sent)
}

func (s script) send(conn net.Conn, mayEnd <-chan struct{}) error {
	at := s[0].size
	for _, part := range s[1:] {
		await.Pause(part.pause)
		if _, err := conn.Write(sockettest.Sequence(at, part.size)); err != nil {
			return err
		}
		at += part.size
	}
	<-mayEnd
	return conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (s script) first(head string) []byte {
	return append([]byte(head), sockettest.Sequence(0, s[0].size)...)
}

func stressClient(s *site, id int) error {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"})
	}
	script := scriptOf(id, true)
	_, err = conn.Write(script.first(fmt.Sprintf(
		"GET /%d HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id, s.address)))
	if err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		return errors.New(r.Status)
	}
	return script.exchange(conn, in, scriptOf(id, false), true)
}

// stressBackend returns the address of a backend that has the other ends.
func stressBackend(t *testing.T, failed chan error) string {
	ln := conntest.Listen(t)
	var all sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
	})
	serve := func(conn net.Conn) error {
		defer conn.Close()
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err == io.EOF {
			return nil // a connection that Caddy has not used
		} else if err != nil {
			return err
		}
		id, err := strconv.Atoi(path.Base(r.URL.Path))
		if err != nil {
			return err
		}
		script := scriptOf(id, false)
		await.Pause(script[0].pause)
		_, err = conn.Write(script.first("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
		if err == nil {
			err = script.exchange(conn, in, scriptOf(id, true), false)
		}
		if err != nil {
			return fmt.Errorf("the backend of %d: %w", id, err)
		}
		return nil
	}
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				if err := serve(conn); err != nil {
					failed <- err
				}
			})
		}
	})
	return ln.Addr().String()
}

// A peer that resets its connection, or that is gone, ends the other one's by a reset. Nothing is left.
func TestPeersThatFail(t *testing.T) {
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend(t)
			s := newSite(t, c.secure, withBackend(c.text, b.address), c.servers)
			for _, idle := range []bool{false, true} {
				for _, ofClient := range []bool{false, true} {
					client, server := s.dial(b, "/", "test")
					exchange(t, client, server)
					if idle {
						resting(t, 1)
					}
					failing, other := server, client
					if ofClient {
						failing, other = client, server
					}
					reset(failing.Conn)
					other.SetReadDeadline(time.Now().Add(conntest.Timeout))
					if n, err := other.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("idle %t, the client fails %t: %d bytes, %v", idle, ofClient, n, err)
					}
					await.Until(t, "the tunnel has ended", func() bool { return tunnels.Stats().Conns == 0 })
				}
			}
		})
	}
}

func reset(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// Without a backend, and with one that closes the connection instead of an answer, the client gets the
// status 502, and its connection goes on.
func TestDeadBackend(t *testing.T) {
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			ln := conntest.Listen(t)
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					http.ReadRequest(bufio.NewReader(conn))
					conn.Close()
				}
			}()
			s := newSite(t, c.secure, withBackend(c.text, ln.Addr().String()), c.servers)
			for range 2 {
				client, r := s.request("/", "test")
				if r.StatusCode != http.StatusBadGateway {
					t.Error(r.Status)
				}
				io.Copy(io.Discard, r.Body)
				_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: "+s.address+"\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
				check.OK(t, err)
				r, err = http.ReadResponse(client.in, nil)
				check.OK(t, err)
				if r.StatusCode != http.StatusBadGateway {
					t.Error(r.Status)
				}
				ln.Close() // the second time there is no backend
			}
		})
	}
}

// A peer that does not read holds back the other one, and no other direction. When it reads, it gets all.
func TestSlowReaders(t *testing.T) {
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend(t)
			s := newSite(t, c.secure, withBackend(c.text, b.address), c.servers)
			for _, slowClient := range []bool{false, true} {
				client, server := s.dial(b, "/", "test")
				slow, fast := server, client
				if slowClient {
					slow, fast = client, server
				}
				much := sockettest.Sequence(0, 16<<20)
				wrote := make(chan error, 1)
				go func() {
					_, err := fast.Write(much)
					if err == nil {
						err = fast.closeWrite()
					}
					wrote <- err
				}()
				await.Until(t, "bytes are held", func() bool { return tunnels.Stats().QueuedBytes > 0 })
				for range 20 {
					conntest.Send(t, slow, "answer")
					conntest.Expect(t, fast, "answer")
				}
				slow.SetReadDeadline(time.Now().Add(conntest.Timeout))
				got, err := io.ReadAll(slow)
				if err != nil || !bytes.Equal(got, much) {
					t.Errorf("the client is slow %t: %d bytes, %v, or others", slowClient, len(got), err)
				}
				check.OK(t, await.Value(t, wrote))
				slow.Close()
				fast.Close()
				await.Until(t, "the tunnel has ended", func() bool { return tunnels.Stats().Conns == 0 })
			}
		})
	}
}
