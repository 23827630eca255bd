package main

import (
	"testing"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		p := program.Start(t, backend, "-addr", "127.0.0.1:0")
		p.Echo(t)
		p.Interrupt(t)
	})
}
