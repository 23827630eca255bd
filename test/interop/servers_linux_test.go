package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/valyala/fasthttp"
	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
)

// idleConns is the number of connections of a measurement of idle memory.
const idleConns = 2000

func TestMain(m *testing.M) {
	idling.Conns = idleConns
	if !(idling.Roles{"server": runServer, "clients": runClients, "stream": runStreamServer}).Play() {
		m.Run()
	}
}

// A subject is a server that park.Listener can be put in front of. Its clients speak first.
type subject struct {
	name  string
	serve func(net.Listener) error
	talk  func(address string) (net.Conn, error) // connects, and completes one request
}

var servers = []subject{
	{"gRPC", serveGRPC, talkGRPC},
	{"mochi-mqtt", serveMQTT, talkMQTT},
	{"SSH", serveSSH, talkSSH},
	{"fasthttp", serveFast, talkHTTP},
	{"net/http", serveHTTP, talkHTTP},
}

func serveGRPC(l net.Listener) error {
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	return s.Serve(l)
}

func talkGRPC(address string) (net.Conn, error) {
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))
	if err == nil {
		_, err = healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	}
	return nil, err // the goroutines of conn keep it
}

func serveMQTT(l net.Listener) error {
	s := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return errors.Join(s.AddHook(new(auth.AllowHook), nil), s.AddListener(listeners.NewNet("net", l)), s.Serve())
}

func talkMQTT(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	// CONNECT of MQTT 3.1.1: a clean session, no keep-alive, the local port as the name.
	_, name, _ := net.SplitHostPort(conn.LocalAddr().String())
	packet := append([]byte{0x10, byte(12 + len(name)), 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, byte(len(name))}, name...)
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != 0x20 || answer[3] != 0 {
		return nil, fmt.Errorf("CONNACK %x, %w", answer, err)
	}
	return conn, nil
}

func serveSSH(l net.Listener) error {
	config := &ssh.ServerConfig{NoClientAuth: true}
	key, err := ssh.NewSignerFromKey(certificate().PrivateKey)
	if err != nil {
		return err
	}
	config.AddHostKey(key)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			c, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for ch := range channels {
				ch.Reject(ssh.Prohibited, "no channels")
			}
			c.Wait()
		}()
	}
}

func talkSSH(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		return nil, err
	}
	go ssh.DiscardRequests(requests)
	go func() {
		for range channels {
		}
	}()
	_, _, err = c.SendRequest("keepalive", true, nil)
	return conn, err
}

func serveFast(l net.Listener) error {
	s := fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { c.WriteString("x") }, Concurrency: 10 * idleConns}
	return s.Serve(l)
}

func serveHTTP(l net.Listener) error {
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }))
}

func talkHTTP(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	return conn, err
}

// A acceptCounter counts the connections that it has accepted.
type acceptCounter struct {
	net.Listener
	n atomic.Int64
}

func (l *acceptCounter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return conn, err
}

// runServer is the main function of the server process of a measurement of idle memory.
func runServer(args []string) {
	if name, ok := strings.CutPrefix(args[0], watched); ok {
		runWatched(name)
		return
	}
	name, behind := args[0], args[1] == "behind"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	counter := &acceptCounter{Listener: ln}
	settled := func() int { return int(counter.n.Load()) }
	var l net.Listener = counter
	if behind {
		f := park.Listener(ln)
		settled = func() int {
			if n := f.Stats(); n.Running == 0 {
				return n.Parked
			}
			return 0
		}
		l = f
	}
	for _, s := range servers {
		if s.name == name {
			go func() {
				if err := s.serve(l); err != nil {
					log.Fatal(err)
				}
			}()
		}
	}
	idling.Serve(ln, settled)
}

// runClients is the main function of the client process.
func runClients(args []string) {
	if args[1] == watched {
		idling.Connect(func() (net.Conn, error) { return watch(args[0]) })
		return
	}
	address, name, silent := args[0], args[1], args[2] == "silent"
	for _, s := range servers {
		if s.name != name {
			continue
		}
		idling.Connect(func() (net.Conn, error) {
			if silent {
				return net.Dial("tcp", address)
			}
			return s.talk(address)
		})
	}
}

// measure returns the memory of a server with idle connections: silent ones, or those that have completed one request. The
// server is behind a Listener if behind is true.
func (s subject) measure(t testing.TB, silent, behind bool) idling.Usage {
	t.Helper()
	say := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	idling.Enough(t)
	server := strings.Join([]string{s.name, say(behind, "behind", "as it is")}, "|")
	return idling.Measure(t, server, s.name, say(silent, "silent", "spoken"))
}

// Connections that have sent nothing cost a server behind a Listener at most 1,200 live bytes each.
func TestSilentMemory(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			n := s.measure(t, true, true).Live()
			if n > 1200 {
				t.Errorf("%.0f live bytes each, want at most 1,200", n)
			}
			t.Logf("%.0f live bytes each of %d", n, idleConns)
		})
	}
}

// BenchmarkIdle measures the memory of a server process for each idle connection: one that has sent nothing, without and
// with a Listener in front of the server, and one that has had one request answered.
func BenchmarkIdle(b *testing.B) {
	for _, s := range servers {
		for _, c := range []struct {
			name           string
			silent, behind bool
		}{{"silent", true, false}, {"silent behind Listener", true, true}, {"after a request", false, false}} {
			b.Run(s.name+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					s.measure(b, c.silent, c.behind).Report(b)
				}
			})
		}
	}
}
