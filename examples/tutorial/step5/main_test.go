package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/test/backendtest"
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
		get := func(view string, to any) {
			answer, err := client.Get(page + view)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if err := json.NewDecoder(answer.Body).Decode(to); err != nil {
				t.Fatal(err)
			}
		}
		var ports debugdata.Ports
		get("ports", &ports)
		total := 0
		for _, p := range ports.Ports { // one for each worker
			var shown debugdata.Registrations
			get("registrations?port="+url.QueryEscape(p.Name), &shown)
			total += shown.Total
		}
		if total != 2 { // the listener and the connection
			t.Errorf("the page shows %d registrations on %+v", total, ports)
		}
		p.Echo(t)
		p.Interrupt(t)
	})
}
