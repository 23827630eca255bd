package caddy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
)

// At a reload under load the peers of all WebSockets get their close frames, however many there are. Both
// ends are in another process. What Caddy does without the lines is logged.
func TestReloadMany(t *testing.T) {
	n := long.Or(5000, 200)
	idling.Descriptors(t, 2*n+1000)
	for _, c := range []struct{ lines, servers, site string }{
		{noLine, "", ""},
		{oneLine, "", "park_upgrades\n"},
		{bothLines, parkWrapper, "park_upgrades\n"},
	} {
		t.Run(c.lines, func(t *testing.T) {
			peers := idling.Start(t, "peers", strconv.Itoa(n))
			text := "$SITE {\n" + c.site + "reverse_proxy " + peers.Say("") + " {\nstream_timeout %dh\n}\n}"
			s := newSite(t, false, fmt.Sprintf(text, 1), c.servers)
			if got := peers.Say(s.address); got != "ready" {
				t.Fatal(got)
			}
			if c.lines != noLine {
				resting(t, n)
			}
			stop := s.ask()
			begin := time.Now()
			s.load(fmt.Sprintf(text, 2))
			took := time.Since(begin)
			outcome := peers.Say("end")
			answered, reset, lost := stop()
			t.Logf("%s: the reload took %v; %s; %d requests were answered, %d connections were reset, %d requests were lost",
				c.lines, took, outcome, answered, reset, lost)
			if want := fmt.Sprintf("of %d: %[1]d clients and %[1]d backends with a close frame", n); c.lines != noLine && outcome != want {
				t.Errorf("%s, want %s", outcome, want)
			}
			if c.lines == bothLines && lost > 0 {
				t.Errorf("%d requests were lost", lost)
			}
		})
	}
}

// ask sends requests to a site, until the result is called. That returns how many were answered, how many
// failed because Linux has reset a connection that the former configuration has not accepted, and how
// many failed otherwise.
func (s *site) ask() (stop func() (answered, reset, lost int64)) {
	var answered, reset, lost atomic.Int64
	var over atomic.Bool
	var clients sync.WaitGroup
	for i := range 4 {
		tr := &http.Transport{DisableKeepAlives: i%2 == 0}
		client := &http.Client{Transport: tr, Timeout: conntest.Timeout}
		clients.Go(func() {
			defer tr.CloseIdleConnections()
			for !over.Load() {
				r, err := client.Get("http://" + s.address + "/")
				text := []byte(nil)
				if err == nil {
					text, err = io.ReadAll(r.Body)
					r.Body.Close()
				}
				switch {
				case err == nil && string(text) == "ok":
					answered.Add(1)
				case errors.Is(err, syscall.ECONNRESET):
					reset.Add(1)
				default:
					s.t.Logf("%s: %q, %v", "GET", text, err)
					lost.Add(1)
				}
			}
		})
	}
	await.Until(s.t, "requests are answered", func() bool { return answered.Load() > 50 })
	return func() (int64, int64, int64) {
		from := answered.Load()
		await.Until(s.t, "requests are answered", func() bool { return answered.Load() > from+50 })
		over.Store(true)
		clients.Wait()
		return answered.Load(), reset.Load(), lost.Load()
	}
}

// runPeers has both ends of n WebSockets. It prints the address of their backend, and then reads that of
// Caddy. After another line it reads to the end of all of them.
func runPeers(n int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	accepted := make(chan *peer, n)
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "ok")
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		}
		if err != nil {
			log.Fatal(err)
		}
		accepted <- &peer{conn, rw.Reader}
	}))
	fmt.Println(ln.Addr())
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	clients, servers := make([]*peer, n), make([]*peer, n)
	for i := range n {
		conn, err := dialUpgraded(lines.Text(), "", false)
		if err != nil {
			log.Fatal(err)
		}
		clients[i], servers[i] = conn.(*peer), <-accepted
		frame := make([]byte, len(question))
		if _, err = io.WriteString(conn, question); err == nil {
			_, err = io.ReadFull(servers[i], frame)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("ready")
	lines.Scan()
	var counts [2]int
	for i := range n {
		for j, p := range [2]*peer{clients[i], servers[i]} {
			p.SetReadDeadline(time.Now().Add(conntest.Timeout))
			if got, err := io.ReadAll(p); err == nil && isGoodbye(string(got)) {
				counts[j]++
			}
		}
	}
	fmt.Printf("of %d: %d clients and %d backends with a close frame\n", n, counts[0], counts[1])
	lines.Scan()
}

// isGoodbye reports whether a text is a close frame with code 1001, masked or not.
func isGoodbye(text string) bool {
	if rest, masked := strings.CutPrefix(text, "\x88\x82"); masked && len(rest) == 6 {
		text = "\x88\x02" + string([]byte{rest[4] ^ rest[0], rest[5] ^ rest[1]})
	}
	return text == goodbye
}
