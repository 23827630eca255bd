package websocket

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
)

const maxMessage = 100_000 // of protocolServer

// protocolServer returns a server that waits for the end of a peer's stream for as long as that
// takes. It compresses what has 200 bytes or more.
func protocolServer(fields string) *Server {
	s := &Server{OnMessage: echo, MaxMessage: maxMessage, MaxQueued: 1 << 30, CloseTimeout: soon,
		Subprotocols: []string{"superchat", "chat"}, Compression: 1, CompressMin: 200}
	for _, f := range strings.Fields(fields) {
		name, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			panic(err)
		}
		reflect.ValueOf(s).Elem().FieldByName(name).SetInt(int64(n))
	}
	return s
}

// probe is sent behind what must end the connection. A server that goes on answers it, so that a case
// fails at once.
const probe = "probe"

// run carries out a case. The client sends in pieces of this size, or everything at once with a
// probe, if size is 0. pause is called between the pieces.
func (c *protocolCase) run(t testing.TB, h *host, size int, pause func()) {
	t.Helper()
	p := c.handshake(t, h)
	defer p.Close()
	if p.answer.StatusCode != http.StatusSwitchingProtocols {
		return
	}
	for steps := c.steps; len(steps) > 0; {
		var out []byte
		for ; len(steps) > 0 && steps[0].send != nil; steps = steps[1:] {
			out = append(out, steps[0].send...)
		}
		if size == 0 && !slices.ContainsFunc(steps, func(s protocolStep) bool { return s.send != nil }) {
			out = append(out, frame(ping, probe)...)
		}
		written := make(chan bool)
		go func() { // a client that writes and does not read would block
			defer close(written)
			for len(out) > 0 {
				n := len(out)
				if size > 0 {
					n = min(size, n)
				}
				if _, err := p.Conn.Write(out[:n]); err != nil {
					return // the server may have closed
				}
				if out = out[n:]; len(out) > 0 && pause != nil {
					pause()
				}
			}
		}()
		failed := ""
		for ; failed == "" && len(steps) > 0 && steps[0].send == nil; steps = steps[1:] {
			failed, steps = p.expect(steps)
		}
		if failed != "" {
			p.Conn.Close() // which ends the writes
		}
		<-written
		if failed != "" {
			t.Fatal(failed)
		}
	}
}

// expect reads what the first of some steps wants. It returns what is wrong, and the steps that
// begin with the one that was satisfied.
func (p *peer) expect(steps []protocolStep) (failed string, rest []protocolStep) {
	s := steps[0]
	f, got, err := p.read()
	if err != nil {
		return fmt.Sprintf("%s: %v, want a frame", s.at, err), steps
	}
	if f&rsv1 != 0 {
		got = expand(p, got)
	}
	if s.closes {
		code, reason := CodeNone, ""
		if len(got) >= 2 {
			code, reason = Code(got[0])<<8|Code(got[1]), got[2:]
		}
		switch {
		case f != fin|opClose || code != s.code || len(got) == 1 || len(got) > maxControl || !utf8.ValidString(reason):
			return fmt.Sprintf("%s: frame %#x %.100q, want a close frame with the code %d", s.at, f, got, s.code), steps
		case s.reason != nil && reason != *s.reason:
			return fmt.Sprintf("%s: the reason %q, want %q", s.at, reason, *s.reason), steps
		}
		if n, err := io.Copy(io.Discard, p.in); n != 0 || err != nil {
			return fmt.Sprintf("%s: %d bytes and %v, want the end of the stream", s.at, n, err), steps
		}
		return "", steps
	}
	for f == pong && got != s.text && len(steps) > 1 && steps[1].want == pong {
		steps = steps[1:] // only the latest of several pings must be answered
		s = steps[0]
	}
	if f != s.want || got != s.text {
		return fmt.Sprintf("%s: frame %#x %.100q (%d bytes), want %#x %.100q (%d bytes)",
			s.at, f, got, len(got), s.want, s.text, len(s.text)), steps
	}
	return "", steps
}

// handshake sends the request of a case and checks the answer.
func (c *protocolCase) handshake(t testing.TB, h *host) *peer {
	t.Helper()
	line := "GET / HTTP/1.1"
	if c.request != "" {
		line = c.request
	}
	fields := []string{"Host: " + h.addr, "Upgrade: websocket", "Connection: keep-alive, Upgrade",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	replaced := map[string]bool{}
	for _, f := range c.header {
		f = strings.ReplaceAll(f, "$HOST", h.addr)
		name, value, _ := strings.Cut(f, ":")
		if !replaced[name] {
			replaced[name] = true
			fields = slices.DeleteFunc(fields, func(f string) bool { return strings.HasPrefix(f, name+":") })
		}
		if value != "" {
			fields = append(fields, f)
		}
	}
	p := h.request(t, line+"\r\n"+strings.Join(fields, "\r\n")+"\r\n\r\n")
	want := c.status
	if want == 0 {
		want = http.StatusSwitchingProtocols
	}
	if p.answer.StatusCode != want {
		t.Fatalf("%s: %s, want the status %d", c.at, p.answer.Status, want)
	}
	answers := c.answer
	if want == http.StatusSwitchingProtocols && !replaced["Sec-WebSocket-Key"] {
		answers = append([]string{"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, answers...)
	}
	for _, f := range answers {
		name, value, _ := strings.Cut(f, ":")
		if got := strings.Join(p.answer.Header.Values(name), ", "); got != strings.TrimSpace(value) {
			t.Fatalf("%s: the answer has %s: %q, want %q", c.at, name, got, strings.TrimSpace(value))
		}
	}
	return p
}

// Every case of the table, sent at once and in pieces, with every kind of host.
func TestProtocol(t *testing.T) {
	t.Parallel() // it waits
	kinds := hosts
	if race.Enabled { // with the detector all of them take minutes
		kinds = long.Or(hosts, []string{"park TLS"})
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			servers := map[string]*host{}
			for section, cases := range bySection(protocolCases()) {
				for _, c := range cases {
					if servers[c.server] == nil {
						servers[c.server] = serve(t, kind, protocolServer(c.server))
					}
				}
				t.Run(section, func(t *testing.T) {
					for _, c := range cases {
						t.Run(c.name, func(t *testing.T) {
							size := 1
							if len(c.sent()) > 400 {
								size = 997
							}
							c.run(t, servers[c.server], 0, nil)
							c.run(t, servers[c.server], size, nil)
						})
					}
				})
			}
		})
	}
}

// bySection yields the cases of each section.
func bySection(all []*protocolCase) func(func(string, []*protocolCase) bool) {
	return func(yield func(string, []*protocolCase) bool) {
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].section == all[0].section {
				n++
			}
			if !yield(all[0].section, all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// The same, byte by byte, and the connection is parked between any two bytes.
func TestProtocolParked(t *testing.T) {
	for _, kind := range []string{"park", "park TLS"} {
		t.Run(kind, func(t *testing.T) {
			for section, cases := range bySection(protocolCases()) {
				t.Run(section, func(t *testing.T) {
					for _, c := range cases {
						if n := len(c.sent()); n > 400 || n == 0 || kind == "park TLS" && testing.Short() {
							continue
						}
						t.Run(c.name, func(t *testing.T) {
							t.Parallel()
							h := serve(t, kind, protocolServer(c.server))
							parks := uint64(0)
							c.run(t, h, 1, func() {
								until(t, "it is parked again", func() bool {
									s := h.server.Lots()[0].Stats()
									return h.server.Stats().Conns == 0 || s.Parked == 1 && s.Running == 0 && s.Parks > parks
								})
								parks = h.server.Lots()[0].Stats().Parks
							})
						})
					}
				})
			}
		})
	}
}

// The table has the sections of the public suite, each name once, and enough cases.
func TestProtocolTable(t *testing.T) {
	names, sections := map[string]string{}, map[string]int{}
	for _, c := range protocolCases() {
		name := c.section + " " + c.name
		if at := names[name]; at != "" {
			t.Errorf("%s: %s is already at %s", c.at, name, at)
		}
		names[name] = c.at
		chapter, _, _ := strings.Cut(c.section, ".")
		sections[chapter]++
	}
	t.Logf("%d cases: %v", len(names), sections)
	if len(names) < 300 {
		t.Errorf("%d cases, want at least 300", len(names))
	}
	for _, chapter := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "9", "10", "12", "13"} {
		if sections[chapter] == 0 {
			t.Errorf("no case of section %s", chapter)
		}
	}
}

// Messages that arrive with the request are in the buffer of net/http.
func TestEarlyBytes(t *testing.T) {
	for _, kind := range hosts {
		t.Run(kind, func(t *testing.T) {
			h := serve(t, kind, &Server{OnMessage: echo})
			all := join(text("early"), frame(ping, "p"), text("bird"))
			for _, n := range []int{1, 5, 11, 20, len(all)} {
				p := h.connect(t, "", all[:n]...)
				p.send(all[n:]...)
				p.wantText("early")
				p.want(pong, "p")
				p.wantText("bird")
			}
		})
	}
}
