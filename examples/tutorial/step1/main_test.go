package main

import (
	"io"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// A level notifies until everything is read, then of the end of the stream. The removal is last.
func TestConnectionEvents(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		p := program.Start(t, backend, "-addr", "127.0.0.1:0")
		c := p.Dial(t)
		if _, err := io.WriteString(c, "hello, port\n"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		said := p.Wait(t)
		for _, part := range []string{"the connection: IN", `read "hello, p", <nil>`, `read "ort\n", <nil>`, "|HANGUP, read \"\", EOF\nthe connection: REMOVE\n"} {
			_, after, found := strings.Cut(said, part)
			if !found {
				t.Fatalf("no %q in what is left of it:\n%s", part, said)
			}
			said = after
		}
		if said != "" {
			t.Errorf("after the removal: %s", said)
		}
	})
}
