package main

import (
	"os"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/backendtest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(source)+"```\n") {
		t.Error("README.md does not show main.go as it is")
	}
}

func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		program.Start(t, backend).Echo(t)
	})
}
