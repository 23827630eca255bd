package httpcorpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// ConnContext is for the field of that name of an http.Server.
func ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, new(atomic.Int64))
}

type connKey struct{}

// Handler returns the handler for the requests of the corpus.
func Handler() http.Handler {
	mux := http.NewServeMux()
	handle := mux.HandleFunc
	handle("/hello", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	handle("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = os.ErrDeadlineExceeded // without addresses
		}
		fmt.Fprintf(w, "%d %v %s %v\n", len(body), err, body, r.Trailer)
	})
	handle("/dump", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s, host %q, length %d, coding %q, close %t\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength,
			r.TransferEncoding, r.Close)
		r.Header.Write(w) // sorted
		fmt.Fprintf(w, "%q %v %v\n", body, err, r.Trailer)
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

// ReadingFirst returns a handler that reads the body, as park.Suspend does, before it calls h. If
// that fails, it answers with the error.
func ReadingFirst(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r2 := r.WithContext(r.Context())
		r2.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r2)
	})
}
