package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gorilla/websocket"

	"github.com/socknotify/socknotify/park"
)

// The two programs of docs/park.md, before and after the migration.

func gorillaEcho(mux *http.ServeMux) {
	upgrader := websocket.Upgrader{}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			op, text, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(op, text) != nil {
				return
			}
		}
	})
}

func gobwasEcho(mux *http.ServeMux) {
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			text, op, err := wsutil.ReadClientData(conn)
			if err != nil || wsutil.WriteServerMessage(conn, op, text) != nil {
				return
			}
		}
	})
}

func parkedEcho(mux *http.ServeMux, lot *park.Lot, limit time.Duration) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		first := make([]byte, 1)
		_, err := io.ReadFull(conn, first) // fails if the connection was idle for too long
		if err == nil {
			conn.SetDeadline(time.Now().Add(limit)) // for the rest of the message, and for the answer
			var text []byte
			var op ws.OpCode
			text, op, err = wsutil.ReadClientData(struct {
				io.Reader
				io.Writer
			}{io.MultiReader(bytes.NewReader(first), conn), conn})
			if err == nil {
				err = wsutil.WriteServerMessage(conn, op, text)
			}
		}
		if err != nil || lot.Park(conn, serve) != nil {
			conn.Close()
		}
	}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, in, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		if in.Reader.Buffered() > 0 || lot.Park(conn, serve) != nil {
			conn.Close() // a client must not send before it has the answer
		}
	})
}

func TestMigration(t *testing.T) {
	lot, err := park.New(park.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, lot.Shutdown(context.Background())) })
	for name, install := range map[string]func(*http.ServeMux){
		"gorilla": gorillaEcho,
		"gobwas":  gobwasEcho,
		"parked":  func(mux *http.ServeMux) { parkedEcho(mux, lot, 2*time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			install(mux)
			server := httptest.NewServer(mux)
			defer server.Close()
			conn, _, _, err := ws.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/echo")
			must(t, err)
			defer conn.Close()
			for _, text := range []string{"one", "two"} {
				must(t, wsutil.WriteClientText(conn, []byte(text)))
				got, err := wsutil.ReadServerText(conn)
				must(t, err)
				if string(got) != text {
					t.Errorf("%q; want %q", got, text)
				}
			}
		})
	}
}

// A client that sends only half a message loses its connection. A client that is idle for longer does not.
func TestMigrationHalfMessage(t *testing.T) {
	const limit = 100 * time.Millisecond
	lot, err := park.New(park.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, lot.Shutdown(context.Background())) })
	mux := http.NewServeMux()
	parkedEcho(mux, lot, limit)
	server := httptest.NewServer(mux)
	defer server.Close()
	conn, _, _, err := ws.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/echo")
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	for range 2 {
		must(t, wsutil.WriteClientText(conn, []byte("whole")))
		got, err := wsutil.ReadServerText(conn)
		must(t, err)
		if string(got) != "whole" {
			t.Errorf("%q", got)
		}
		time.Sleep(2 * limit)
	}
	frame := ws.MustCompileFrame(ws.MaskFrame(ws.NewTextFrame([]byte("half of it"))))
	_, err = conn.Write(frame[:len(frame)/2])
	must(t, err)
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want the end of the connection", err)
	}
}
