package main

import (
	"os"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/port.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(source)+"```\n") {
		t.Error("docs/port.md does not show main.go as it is")
	}
}

func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		program.Start(t, backend).Echo(t)
	})
}
