package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gorilla/websocket"

	"github.com/socknotify/socknotify/park"
)

// The two ways that docs/park.md shows, before and after.

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

func parkedEcho(mux *http.ServeMux, lot *park.Lot) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		text, op, err := wsutil.ReadClientData(conn)
		if err != nil || wsutil.WriteServerMessage(conn, op, text) != nil || lot.Park(conn, serve) != nil {
			conn.Close()
		}
	}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, in, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		if in.Reader.Buffered() > 0 || lot.Park(conn, serve) != nil {
			conn.Close() // a client may not send before it has the answer
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
		"parked":  func(mux *http.ServeMux) { parkedEcho(mux, lot) },
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
