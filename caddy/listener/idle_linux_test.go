package listener

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
)

func playRole() bool {
	idling.Conns = 2000
	return idling.Roles{"server": playServer, "clients": playClients, "caddy": playCaddy}.Play()
}

// An idle connection that is parked needs no more live bytes than this, of heap and stacks. What Caddy needs without the
// wrapper is logged beside it.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes 2,000 connections, six times")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Enough(t)
	for _, c := range []struct {
		kind string
		most float64
	}{{"plain", 1500}, {"tls", 1900}, {"h2", 2800}} {
		t.Run(c.kind, func(t *testing.T) {
			ours := idling.Measure(t, "park "+c.kind, c.kind)
			stock := idling.Measure(t, "stock "+c.kind, c.kind)
			t.Logf("%s: %.0f live bytes, %d of them stack; without the wrapper %.0f, %d of them stack", c.kind, ours.Live(),
				ours.Stack/int64(idling.Conns), stock.Live(), stock.Stack/int64(idling.Conns))
			if ours.Live() > c.most {
				t.Errorf("%s: %.0f live bytes, want at most %.0f", c.kind, ours.Live(), c.most)
			}
		})
	}
}

// playServer runs Caddy with the wrapper or without.
func playServer(args []string) {
	wrapper, kind, _ := strings.Cut(args[0], " ")
	dir, err := os.MkdirTemp("", "caddy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := &site{addr: fmt.Sprintf("127.0.0.1:%d", freeport.Port()), secure: kind != "plain", dir: dir}
	if err := writeCertificate(dir); err != nil {
		log.Fatal(err)
	}
	wrappers := "test_count"
	if wrapper == "park" {
		wrappers += "\npark"
	}
	loadQuietly(s.config(setting{secure: s.secure, wrappers: wrappers}))
	first, err := s.connect()
	if err == nil {
		_, err = roundTrip(first, "/")
		first.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
	addr, err := net.ResolveTCPAddr("tcp", s.addr)
	if err != nil {
		log.Fatal(err)
	}
	idling.Serve(address{addr: addr}, func() int {
		if wrapper == "stock" {
			return int(idled.Load())
		}
		n, err := gather("parked")
		if err != nil {
			log.Fatal(err)
		}
		return n
	})
}

// gather returns the gauge of the connections in a state, without a connection for it.
func gather(state string) (n int, err error) {
	families, err := registry.Load().Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "caddy_park_connections" && m.GetLabel()[1].GetValue() == state {
				n += int(m.GetGauge().GetValue())
			}
		}
	}
	return n, err
}

// loadQuietly loads a configuration. Caddy's first line, with the name of the log, is not for standard error, which must be empty.
func loadQuietly(caddyfile string) {
	saved, err := unix.Dup(2)
	if err != nil {
		log.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer null.Close()
	unix.Dup3(int(null.Fd()), 2, 0)
	err = load(caddyfile)
	unix.Dup3(saved, 2, 0)
	unix.Close(saved)
	if err != nil {
		log.Fatal(err)
	}
}

// An address is a listener for idling.Serve, which prints its address.
type address struct {
	net.Listener
	addr net.Addr
}

func (a address) Addr() net.Addr { return a.addr }

// playClients sends a request on each connection.
func playClients(args []string) {
	s := &site{addr: args[0], secure: args[1] == "tls"}
	idling.Connect(func() (net.Conn, error) {
		if args[1] == "h2" {
			conn, err := tls.Dial("tcp", s.addr, clientTLS("h2"))
			if err != nil {
				return nil, err
			}
			return conn, requestHTTP2(conn)
		}
		conn, err := s.connect()
		if err == nil {
			_, err = roundTrip(conn, "/")
		}
		return conn, err
	})
}

// requestHTTP2 sends a request, and reads to the end of its answer.
func requestHTTP2(conn net.Conn) error {
	var out, block bytes.Buffer
	f, enc := http2.NewFramer(&out, conn), hpack.NewEncoder(&block)
	io.WriteString(&out, http2.ClientPreface)
	f.WriteSettings()
	f.WriteSettingsAck()
	for _, h := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "localhost"}, {Name: ":path", Value: "/"}, {Name: "user-agent", Value: "Go-http-client/2.0"}} {
		enc.WriteField(h)
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	if _, err := conn.Write(out.Bytes()); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if h := frame.Header(); h.StreamID == 1 && h.Flags.Has(http2.FlagDataEndStream) {
			return nil
		}
	}
}

// A process that is ended by a signal answers the requests that it has begun, also those of a former configuration.
func TestExit(t *testing.T) {
	for _, kind := range []string{"plain", "tls"} {
		t.Run(kind, func(t *testing.T) {
			asked, answer := make(chan struct{}, 2), make(chan struct{})
			backend := conntest.Listen(t)
			go http.Serve(backend, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					asked <- struct{}{}
					<-answer
				}
				io.WriteString(w, "hello")
			}))
			s := newSite(t, kind == "tls")
			p := idling.Start(t, "caddy", s.addr, s.dir, kind, backend.Addr().String())
			if got := p.Say(""); got != "loaded" {
				t.Fatal(got)
			}
			answers := make(chan error, 2)
			slow := func() {
				client := s.client(t, false)
				go func() {
					got, err := s.get(client, "/slow")
					if err == nil && got != "hello" {
						err = fmt.Errorf("got %q", got)
					}
					answers <- err
				}()
				await.Receive(t, "the request reaches the backend", asked)
			}
			slow()
			if got := p.Say("reload"); got != "loaded" {
				t.Fatal(got)
			}
			slow()
			p.Say("exit")
			await.Until(t, "nothing is accepted", func() bool {
				conn, err := s.connect()
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			close(answer)
			for range 2 {
				check.OK(t, await.Value(t, answers))
			}
		})
	}
}

// playCaddy runs Caddy. For each line of standard input but "exit" it loads the configuration again. With "exit" the process
// gets the signal with which service managers end programs.
func playCaddy(args []string) {
	s := &site{addr: args[0], dir: args[1], secure: args[2] == "tls"}
	caddy.TrapSignals()
	for line := ""; ; {
		loadQuietly(s.config(setting{secure: s.secure, wrappers: "park", routes: "reverse_proxy " + args[3]}))
		fmt.Println("loaded")
		if _, err := fmt.Scanln(&line); err != nil {
			return
		}
		if line == "exit" {
			syscall.Kill(os.Getpid(), syscall.SIGTERM)
			fmt.Println("exits")
			time.Sleep(time.Hour)
		}
	}
}

// awaitEnded does not wait longer than its context, and fails with its cause.
func TestAwaitEnded(t *testing.T) {
	s := run(t, setting{wrappers: "park", routes: "respond hello"})
	conn := s.dial(t)
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\n") // the head is not complete
	check.OK(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	await.Until(t, "the connection is served", func() bool { return serving() == 1 })
	check.OK(t, caddy.Stop())
	check.Is(t, awaitEnded(ctx), io.ErrNoProgress)
	conn.Close()
	check.OK(t, awaitEnded(t.Context()))
}
