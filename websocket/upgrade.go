package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// ServeHTTP upgrades a request, as Upgrade does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Upgrade(w, r) }

// Upgrade answers a request that asks for a WebSocket. The connection is then owned by the server,
// and needs no goroutine of net/http's. If the request cannot be upgraded, Upgrade answers it with
// an error status, and returns the reason; one with a body, also an empty one in chunks, gets 400.
// The answer has the fields of w.Header, such as cookies.
// It works with net/http and with park.HTTPServer, and with every http.ResponseWriter from which
// http.ResponseController can hijack the connection. Over HTTP/2 it answers CONNECT requests for
// WebSockets (RFC 8441) that package park/http2 serves; w may then have an Unwrap method. Other
// requests of HTTP/2 are refused with the status 505.
//
// Upgrade calls OnOpen, and OnMessage for messages that came with the request.
func (s *Server) Upgrade(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	key, status, err := s.checkRequest(w, r)
	if err != nil {
		s.rejected.Add(1)
		http.Error(w, err.Error(), status)
		return nil, err
	}
	c := &Conn{server: s}
	c.stream.Value = c
	var early []byte
	if err = s.prepare(); err == nil {
		early, err = s.open(c, w, r, key)
	}
	switch {
	case err == park.ErrMaxConns, err == ErrServerClosed:
		if err == park.ErrMaxConns {
			s.log.Log(serving.LevelLimit, "connection refused", "limit", "MaxConns", "remote", r.RemoteAddr)
		}
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, err
	case err != nil:
		s.log.Log(slog.LevelError, "cannot upgrade", "err", err, "remote", r.RemoteAddr)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, err
	}
	c.lastIn = s.now()
	c.lastMessage.Store(int64(c.lastIn))
	err = c.stream.Start(early, func(*stream.Stream) error {
		if s.OnOpen != nil {
			c.handle(func() error { return s.OnOpen(c, r) })
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("websocket: upgrade: %w", err)
	}
	return c, nil
}

// open takes the connection over, or the stream of HTTP/2, and sends the answer. It returns what
// was received after the request.
func (s *Server) open(c *Conn, w http.ResponseWriter, r *http.Request, key string,
) (early []byte, err error) {
	c.protocol = s.choose(r)
	extension := ""
	if s.deflater != nil {
		extension, c.compressed = negotiate(r.Header["Sec-Websocket-Extensions"])
	}
	h := w.Header()
	if r.ProtoMajor == 1 {
		if early, err = s.streams.OpenHTTP(&c.stream, w); err == nil {
			c.stream.WriteShared(answer(key, c.Subprotocol(), extension, h))
		}
		return early, err
	}
	for name := range ours {
		h.Del(name)
	}
	if keys := r.Header["Sec-Websocket-Key"]; len(keys) == 1 {
		h.Set("Sec-Websocket-Accept", accepted(keys[0])) // no client should want it, but undici does
	}
	if c.protocol > 0 {
		h.Set("Sec-Websocket-Protocol", c.Subprotocol())
	}
	if c.compressed {
		h.Set("Sec-Websocket-Extensions", extension)
	}
	if err = s.streams.OpenResponse(&c.stream, w); err != nil {
		h.Del("Sec-Websocket-Accept")
		h.Del("Sec-Websocket-Protocol")
		h.Del("Sec-Websocket-Extensions")
	}
	return nil, err
}

// checkRequest checks a request. It returns the value of Sec-WebSocket-Key, or the status and the reason of a refusal.
// A request of HTTP/2 needs no key.
func (s *Server) checkRequest(w http.ResponseWriter, r *http.Request) (key string, status int, err error) {
	refuse := func(status int, reason string) (string, int, error) {
		return "", status, errors.New("websocket: upgrade: " + reason)
	}
	switch protocol := r.Header[":protocol"]; {
	case r.ProtoMajor == 2 && r.Method == http.MethodConnect && len(protocol) == 1:
		if status, reason := checkConnect(w, r); status != 0 {
			return refuse(status, reason)
		}
		if !s.allowed(r) {
			return refuse(http.StatusForbidden, "origin not allowed")
		}
		return "", 0, nil
	case r.ProtoMajor != 1:
		return refuse(http.StatusHTTPVersionNotSupported,
			"want HTTP/1.1, or an extended CONNECT request of HTTP/2")
	case !hasToken(r.Header["Connection"], "upgrade"), !hasToken(r.Header["Upgrade"], "websocket"):
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		return refuse(http.StatusUpgradeRequired, "this address is for WebSockets")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		return refuse(http.StatusMethodNotAllowed, "want the method GET")
	case r.ProtoMinor < 1:
		return refuse(http.StatusBadRequest, "want HTTP/1.1")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		w.Header().Set("Sec-WebSocket-Version", "13")
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		return refuse(http.StatusUpgradeRequired, "want Sec-WebSocket-Version 13")
	case r.ContentLength != 0: // frames begin after the whole request, so its body would be taken for some
		return refuse(http.StatusBadRequest, "want a request without a body")
	}
	keys := r.Header["Sec-Websocket-Key"]
	if len(keys) != 1 {
		return refuse(http.StatusBadRequest, "want one Sec-WebSocket-Key")
	}
	if b, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(b) != 16 {
		return refuse(http.StatusBadRequest, "Sec-WebSocket-Key is not base64 of 16 bytes")
	}
	if !s.allowed(r) {
		return refuse(http.StatusForbidden, "origin not allowed")
	}
	return keys[0], 0, nil
}

// checkConnect checks an extended CONNECT request. It returns the status and the reason of a
// refusal, or 0.
func checkConnect(w http.ResponseWriter, r *http.Request) (status int, reason string) {
	switch {
	case !strings.EqualFold(r.Header.Get(":protocol"), "websocket"):
		return http.StatusNotImplemented, "want the protocol websocket"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		w.Header().Set("Sec-WebSocket-Version", "13")
		return http.StatusBadRequest, "want Sec-WebSocket-Version 13"
	case r.ContentLength >= 0:
		return http.StatusBadRequest, "want a request that does not end"
	}
	return 0, ""
}

// allowed reports whether the origin of a request may open a WebSocket.
func (s *Server) allowed(r *http.Request) bool {
	if s.CheckOrigin != nil {
		return s.CheckOrigin(r)
	}
	return SameOrigin(r)
}

// SameOrigin is the default of Server.CheckOrigin. It reports whether a request has no Origin header, as requests that are
// not from browsers, or one with the host and port of its Host header.
func SameOrigin(r *http.Request) bool {
	origin := r.Header["Origin"]
	if len(origin) == 0 {
		return true // not a browser
	}
	u, err := url.Parse(origin[0])
	return len(origin) == 1 && err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// choose returns the place of the subprotocol in Subprotocols and one more, or 0.
func (s *Server) choose(r *http.Request) uint16 {
	for i, p := range s.Subprotocols {
		for _, line := range r.Header["Sec-Websocket-Protocol"] {
			for offered := range strings.SplitSeq(line, ",") {
				if strings.TrimSpace(offered) == p {
					return uint16(i + 1)
				}
			}
		}
	}
	return 0
}

// accepted returns the value of Sec-WebSocket-Accept for a key.
func accepted(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// answer returns the answer to a handshake.
func answer(key, protocol, extension string, more http.Header) []byte {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ")
	b.WriteString(accepted(key) + "\r\n")
	if protocol != "" {
		b.WriteString("Sec-WebSocket-Protocol: " + protocol + "\r\n")
	}
	if extension != "" {
		b.WriteString("Sec-WebSocket-Extensions: " + extension + "\r\n")
	}
	more.WriteSubset(&b, ours)
	b.WriteString("\r\n")
	return []byte(b.String())
}

// ours are the fields that answer sets, or that have no place in an answer without a body.
var ours = map[string]bool{"Upgrade": true, "Connection": true, "Sec-Websocket-Accept": true, "Sec-Websocket-Protocol": true,
	"Sec-Websocket-Extensions": true, "Content-Length": true, "Transfer-Encoding": true}

// hasToken reports whether a list has a token. Case does not matter.
func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

func isToken(s string) bool {
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) {
			return false
		}
	}
	return s != ""
}

// negotiate returns the answer to the first offer of permessage-deflate that can be accepted. Every offer can be answered
// by no context takeover in both directions. One that bounds the window of this side is declined, because package flate
// has no smaller window than that of 15 bits.
func negotiate(lines []string) (answer string, ok bool) {
	for _, line := range lines {
		for offer := range splitQuoted(line, ',') {
			if answer, ok = accept(offer); ok {
				return answer, true
			}
		}
	}
	return "", false
}

// accept returns the answer to an offer, or false if it is declined.
func accept(offer string) (string, bool) {
	answer := "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	seen := map[string]bool{}
	first := true
	for part := range splitQuoted(offer, ';') {
		name, value, has := strings.Cut(strings.TrimSpace(part), "=")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if first {
			if name != "permessage-deflate" || has {
				return "", false
			}
			first = false
			continue
		}
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		bits, err := strconv.Atoi(value)
		valid := err == nil && bits >= 8 && bits <= 15 && value[0] != '0' && value[0] != '+'
		switch {
		case seen[name]:
			return "", false
		case (name == "server_no_context_takeover" || name == "client_no_context_takeover") && !has:
		case name == "client_max_window_bits" && (!has || valid):
		case name == "server_max_window_bits" && valid && bits == 15:
			answer += "; server_max_window_bits=15"
		default:
			return "", false
		}
		seen[name] = true
	}
	return answer, true
}

// splitQuoted splits a string at a separator that is not in quotes.
func splitQuoted(s string, separator byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		from, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] == '\\' && quoted:
				i++
			case s[i] == '"':
				quoted = !quoted
			case s[i] == separator && !quoted:
				if !yield(s[from:i]) {
					return
				}
				from = i + 1
			}
		}
		yield(s[from:])
	}
}
