package sse

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// ContentType is the type of the answer to a client.
const ContentType = "text/event-stream"

// ServeHTTP makes a client of a request, as Open does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Open(w, r) }

// Open answers a request, and makes a client of it. The client is then owned by the server, and
// needs no goroutine of net/http's. The answer has the fields of w.Header, such as cookies and
// those that middleware has set. If the connection cannot be taken over, Open returns when the
// client has gone.
//
// If the request cannot become a client, Open answers it with an error status, and returns the
// reason, such as park.ErrMaxConns, park.ErrServerClosed, or park.ErrBodyUnread for a request of
// HTTP/1 with a body.
func (s *Server) Open(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	s.once.Do(s.prepare)
	if r.Method != http.MethodGet {
		s.rejected.Add(1)
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, errMethod.Error(), http.StatusMethodNotAllowed)
		return nil, errMethod
	}
	var first []byte
	c, conn := new(Conn), (*responseConn)(nil)
	received, err := s.streams.OpenHTTP(c.stream(), w)
	if err == nil {
		prepareHeader(w.Header())
		first = s.appendRetry(head(r, w.Header()))
	}
	if errors.Is(err, http.ErrNotSupported) {
		prepareHeader(w.Header())
		err = s.streams.OpenResponse(c.stream(), w)
	}
	if errors.Is(err, http.ErrNotSupported) {
		conn = newResponseConn(w, r)
		err = s.streams.Open(c.stream(), conn)
	}
	if err != nil {
		s.refuse(w, r, err)
		return nil, err
	}
	if conn != nil {
		w.WriteHeader(http.StatusOK)
	}
	if first == nil {
		first = s.appendRetry([]byte(":\n")) // so that the header is sent
	}
	c.stream().WriteShared(first)
	err = c.stream().Start(received, func(*stream.Stream) error {
		if s.OnOpen == nil {
			return nil
		}
		return s.OnOpen(c, r, r.Header.Get("Last-Event-ID"))
	})
	if conn != nil {
		conn.wait()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

var errMethod = errors.New("sse: want the method GET")

// refuse answers a request that cannot become a client.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, park.ErrBodyUnread) {
		s.rejected.Add(1)
		http.Error(w, "sse: want a request without a body", http.StatusBadRequest)
		return
	}
	if err != park.ErrMaxConns && err != park.ErrServerClosed {
		s.log.Log(slog.LevelError, "cannot serve a client", "err", err, "remote", r.RemoteAddr)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	if err == park.ErrMaxConns {
		s.log.Log(serving.LevelLimit, "connection refused", "limit", "MaxConns", "remote", r.RemoteAddr)
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// prepareHeader sets what the answer must have, and deletes what it must not: it has no length, and
// its bytes are sent as they are.
func prepareHeader(h http.Header) {
	for _, name := range []string{
		"Content-Length", "Content-Encoding", "Transfer-Encoding", "Trailer", "Connection",
	} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentType)
	h.Set("X-Accel-Buffering", "no") // for nginx
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-cache, no-transform")
	}
}

// head returns the head of an answer that ends with its connection.
func head(r *http.Request, h http.Header) []byte {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\n")
	if !r.ProtoAtLeast(1, 1) {
		b.Reset()
		b.WriteString("HTTP/1.0 200 OK\r\n")
	}
	b.WriteString("Connection: close\r\n")
	if _, ok := h["Date"]; !ok {
		b.WriteString("Date: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n")
	}
	h.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
