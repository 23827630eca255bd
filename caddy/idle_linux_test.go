package caddy

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
)

// The lines in a Caddyfile with which connections are measured.
const (
	noLine    = "none"
	oneLine   = "park_upgrades"      // in the site
	bothLines = "park_upgrades,park" // and in the listener wrappers
)

// An idle WebSocket through Caddy, after one message each way, has at most 1,700 live bytes, and no
// goroutine. With TLS in front it has at most 2,200, if the listener wrapper park is there; otherwise it
// has what crypto/tls has. Caddy without the lines is measured beside it.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes 30,000 connections, and Caddy without park_upgrades has much memory for each")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Descriptors(t, 2*idling.Conns)
	for _, c := range []struct {
		secure bool
		most   map[string]float64
	}{
		{false, map[string]float64{oneLine: 1700, bothLines: 1700}},
		{true, map[string]float64{oneLine: 8500, bothLines: 2200}},
	} {
		stock := measureIdle(t, noLine, c.secure)
		t.Logf("TLS %t: %.0f live bytes, %d resident", c.secure, stock.Live(), stock.RSS/int64(idling.Conns))
		for lines, most := range c.most {
			ours := measureIdle(t, lines, c.secure)
			t.Logf("TLS %t, %s: %.0f live bytes, %d resident", c.secure, lines, ours.Live(), ours.RSS/int64(idling.Conns))
			if ours.Live() > most || ours.Live() > stock.Live()/10 {
				t.Errorf("TLS %t, %s: %.0f live bytes, want at most %.0f; without the lines %.0f", c.secure, lines, ours.Live(), most, stock.Live())
			}
		}
	}
}

func measureIdle(t *testing.T, lines string, secure bool) idling.Usage {
	t.Helper()
	return idling.Measure(t, lines+" "+strconv.FormatBool(secure), strconv.FormatBool(secure))
}

// runRole is the main function of a child process that has a role. It reports whether this process has one.
func runRole() bool {
	return idling.Roles{
		"server": func(args []string) {
			lines, secure, _ := strings.Cut(args[0], " ")
			runCaddy(lines, secure == "true")
		},
		"clients": func(args []string) { runClients(args[0], args[1] == "true") },
		"peers": func(args []string) {
			n, _ := strconv.Atoi(args[0])
			runPeers(n)
		},
	}.Play()
}

// An addressed is a listener of which only the address is used.
type addressed struct {
	net.Listener
	addr net.Addr
}

func (a addressed) Addr() net.Addr { return a.addr }

// silence makes the process write to standard error what is logged by package log alone. Caddy writes
// a line there when it gets its log.
func silence() {
	stderr, err := syscall.Dup(2)
	if err != nil {
		log.Fatal(err)
	}
	log.SetOutput(os.NewFile(uintptr(stderr), "stderr"))
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer null.Close()
	if err := syscall.Dup3(int(null.Fd()), 2, 0); err != nil {
		log.Fatal(err)
	}
}

// runCaddy runs Caddy with a proxy whose backend is the one that a request names.
func runCaddy(with string, secure bool) {
	silence()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ln.Close()
	site, lines := "http://"+ln.Addr().String(), ""
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if secure {
		if err := writeCertificate(dir); err != nil {
			log.Fatal(err)
		}
		site, lines = "https://"+ln.Addr().String(), fmt.Sprintf("tls %s/cert.pem %[1]s/key.pem\n", dir)
	}
	ours, wrapper := with != noLine, ""
	if ours {
		lines += "park_upgrades\n"
	}
	if with == bothLines {
		wrapper = "servers {\nlistener_wrappers {\npark\n}\n}\n"
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nadmin off\ndefault_bind 127.0.0.1\nauto_https disable_redirects\npersist_config off\nstorage file_system "+dir+"\n"+wrapper+"log {\noutput discard\n}\n}\n"+
		site+" {\n"+lines+"reverse_proxy {http.request.header.X-Backend}\n}"), nil)
	if err == nil {
		err = caddy.Load(config, true)
	}
	if err != nil {
		log.Fatal(err)
	}
	idling.Serve(addressed{addr: ln.Addr()}, func() int {
		goroutines := runtime.NumGoroutine()
		if !ours {
			return goroutines / 4
		}
		st := tunnels.Stats()
		if st.Running > 0 || goroutines > 100 {
			return 0
		}
		return min(int(st.BytesForth), int(st.BytesBack), st.Parked/2)
	})
}

// runClients has the clients and their backend.
func runClients(address string, secure bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		open := make(map[net.Conn]bool) // otherwise the collector would close them
		for {
			conn, err := ln.Accept()
			if err != nil {
				log.Fatal(err)
			}
			in := bufio.NewReader(conn)
			if _, err = http.ReadRequest(in); err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			}
			if err == nil {
				_, err = in.ReadByte()
			}
			if err == nil {
				_, err = io.WriteString(conn, "y")
			}
			if err != nil {
				log.Fatal(err)
			}
			open[conn] = true
		}
	}()
	idling.Connect(func() (net.Conn, error) {
		conn, err := dialUpgraded(address, ln.Addr().String(), secure)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(conn, "x"); err != nil {
			return nil, err
		}
		_, err = io.ReadFull(conn, make([]byte, 1))
		return conn.(*peer).Conn, err
	})
}
