package main

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/backendtest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		p := program.Start(t, backend, "-addr", "127.0.0.1:0", "-debug-addr", "127.0.0.1:0")
		c := p.Dial(t)
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		page := p.Find(t, `live page on (\S+)`)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get(page + "registrations")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var shown debug.Registrations
		if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
			t.Fatal(err)
		}
		if shown.Port != "echo" || shown.Total != 2 { // the listener and the connection
			t.Errorf("the page shows %+v", shown)
		}
		p.Echo(t)
		p.Interrupt(t)
	})
}
