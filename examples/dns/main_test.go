package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// each runs a test on every backend, which must leave no goroutine or descriptor.
func each(t *testing.T, test func(t *testing.T, backend string)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		handles.NoneLeft(t, "socket:") // after the sockets of the test are closed
		test(t, backend)
	})
}

// start runs a server on a socket until the end of the test.
func start(t *testing.T, s *sock.Socket, backend string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx, s, backend) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("serve: %v", err)
		}
		s.Close()
	})
}

// startUDP runs a server and returns its address.
func startUDP(t *testing.T, backend string) string {
	s, err := sock.New(sock.UDP4)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(sock.Loopback); err != nil {
		t.Fatal(err)
	}
	start(t, s, backend)
	return s.LocalAddr().String()
}

func dial(t *testing.T, server string) net.Conn {
	c, err := net.Dial("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// query returns a query for hello.test, or an invalid one.
func query(id uint16, with ...func(b []byte)) []byte {
	b := []byte{byte(id >> 8), byte(id), 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	b = append(b, "\x05Hello\x04TEST\x00"+typeA+classIN...)
	for _, change := range with {
		change(b)
	}
	return b
}

// exchange sends a datagram and returns the answer.
func exchange(t *testing.T, c net.Conn, query []byte) []byte {
	t.Helper()
	if _, err := c.Write(query); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 600)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// Go's own resolver understands the answers.
func TestResolver(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		server := startUDP(t, backend)
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", server)
		}}
		ips := func(network, name string) func() (any, error) {
			return func() (any, error) { return r.LookupNetIP(t.Context(), network, name) }
		}
		var asking sync.WaitGroup
		for _, c := range []struct {
			ask  func() (any, error)
			want string
		}{
			{ips("ip4", "hello.test."), "[192.0.2.1 192.0.2.2]"},
			{ips("ip", "HELLO.Test."), "[192.0.2.1 192.0.2.2]"},
			{ips("ip6", "six.test."), "[2001:db8::6]"},
			{ips("ip", "six.test."), "[2001:db8::6]"},
			{func() (any, error) { return r.LookupTXT(t.Context(), "hello.test.") }, "[helloworld]"},
			{ips("ip", "unknown.test."), ""},
			{ips("ip6", "hello.test."), ""}, // the name has others
		} {
			for range 10 {
				asking.Go(func() {
					got, err := c.ask()
					var e *net.DNSError
					if c.want == "" && errors.As(err, &e) && e.IsNotFound {
						return
					}
					if s := fmt.Sprint(got); err != nil || s != c.want {
						t.Errorf("%s, %v; want %s", s, err, c.want)
					}
				})
			}
		}
		asking.Wait()
	})
}

// Malformed and unsupported queries are answered with an error code. Datagrams that are not queries are not answered.
func TestCodes(t *testing.T) {
	set := func(i int, v byte) func([]byte) { return func(b []byte) { b[i] = v } }
	each(t, func(t *testing.T, backend string) {
		c := dial(t, startUDP(t, backend))
		for _, test := range []struct {
			name                     string
			query                    []byte
			code, questions, answers byte
		}{
			{"right", query(1), 0, 1, 2},
			{"more behind it", append(query(1), make([]byte, 50)...), 0, 1, 2},
			{"another type", query(1, set(25, 15)), 0, 1, 0},
			{"another name", query(1, set(13, 'j')), nxDomain, 1, 0},
			{"the root", append(query(1)[:12], "\x00"+typeA+classIN...), nxDomain, 1, 0},
			{"another class", query(1, set(27, 3)), refused, 1, 0},
			{"another opcode", query(1, set(2, 4<<3)), notImp, 0, 0},
			{"another opcode, malformed", query(1, set(2, 5<<3))[:12], notImp, 0, 0},
			{"header only", query(1)[:12], formErr, 0, 0},
			{"no question", query(1, set(5, 0)), formErr, 0, 0},
			{"two questions", query(1, set(5, 2)), formErr, 0, 0},
			{"257 questions", query(1, set(4, 1)), formErr, 0, 0},
			{"cut in the name", query(1)[:20], formErr, 0, 0},
			{"cut before the class", query(1)[:26], formErr, 0, 0},
			{"cut in the class", query(1)[:27], formErr, 0, 0},
			{"a pointer for a name", query(1, set(12, 0xc0), set(13, 12)), formErr, 0, 0},
			{"a long label", query(1, set(12, 64)), formErr, 0, 0},
			{"a label beyond the end", query(1, set(18, 63)), formErr, 0, 0},
			{"a long name", append(query(1)[:12], bytes.Repeat([]byte("\x01x"), 200)...), formErr, 0, 0},
			{"too long a name", append(query(1)[:12], strings.Repeat("\x01x", 127)+"\x01\x00\x00"+typeA+classIN...), formErr, 0, 0},
			{"the longest name", append(query(1)[:12], strings.Repeat("\x01x", 127)+"\x00"+typeA+classIN...), nxDomain, 1, 0},
		} {
			got := exchange(t, c, test.query)
			if len(got) < 12 || got[1] != 1 || got[2]&0x80 == 0 || got[3] != test.code || got[5] != test.questions || got[7] != test.answers {
				t.Errorf("%s: % x", test.name, got)
			}
		}
		for _, silent := range [][]byte{{}, {1}, query(1)[:11], query(1, set(2, 0x80))} {
			if _, err := c.Write(silent); err != nil {
				t.Fatal(err)
			}
			if got := exchange(t, c, query(2)); got[1] != 2 {
				t.Errorf("% x was answered with % x", silent, got)
			}
		}
	})
}

// junk returns random bytes, or a damaged query.
func junk(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(600))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if r.IntN(4) > 0 {
		q := query(uint16(r.Uint32()))
		for range r.IntN(4) {
			q[r.IntN(len(q))] = byte(r.Uint32())
		}
		b = append(q[:r.IntN(len(q)+1)], b[:r.IntN(len(b)+1)/4]...)
	}
	return b
}

func check(t *testing.T, query, got []byte) {
	t.Helper()
	if got == nil && (len(query) < 12 || query[2]&0x80 != 0) {
		return
	}
	if len(got) < 12 || len(got) > 512 || !bytes.Equal(got[:2], query[:2]) || got[2]&0x80 == 0 {
		t.Errorf("% x was answered with % x", query, got)
	}
}

// Any datagram is answered with a valid message, or not at all.
func TestMalformed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		b := junk(r)
		check(t, b, answer(b))
	}
	each(t, func(t *testing.T, backend string) {
		c := dial(t, startUDP(t, backend))
		for range 50 {
			for range 10 {
				b := junk(r)
				b = append([]byte{0xff}, b...) // the id differs from that of the query that follows
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			for got := exchange(t, c, query(1)); got[0] == 0xff; {
				n, err := c.Read(got[:cap(got)])
				if err != nil {
					t.Fatal(err)
				}
				got = got[:n]
			}
		}
	})
}

// Answers that cannot be sent are kept, and no query is received until they are sent. That is too rare on a UDP socket
// for a test, so this test uses a Unix socket, which waits for its peer.
func TestSendWouldBlock(t *testing.T) {
	const queries = 200
	each(t, func(t *testing.T, backend string) {
		server, peer, err := sock.UnixPair(true)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := server.SetWriteBuffer(1); err != nil { // the minimum
			t.Fatal(err)
		}
		start(t, server, backend)
		c, err := sock.Attach(peer)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		for id := range queries {
			if _, err := c.Write(query(uint16(id))); err != nil {
				t.Fatal(err)
			}
		}
		b := make([]byte, 600)
		for id := range queries {
			if n, err := c.Read(b); err != nil || n < 12 || b[0] != 0 || b[1] != byte(id) {
				t.Fatalf("answer %d: % x, %v", id, b[:n], err)
			}
		}
	})
}

func TestNoSuchBackend(t *testing.T) {
	if err := serve(t.Context(), nil, "abacus"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
