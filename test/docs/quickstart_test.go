package docs_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// The first commands of README.md do what it says, except for the first, which clones the project. Here the server uses
// other ports, and the load is shorter.
func TestQuickStart(t *testing.T) {
	backendtest.Need(t)
	commands := quickStart(t)
	program := filepath.Join(t.TempDir(), "socknotify")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build(t, program)
	const served, live = "127.0.0.1:9000", "127.0.0.1:6060"
	addresses := strings.NewReplacer(served, "127.0.0.1:0", live, "127.0.0.1:0")
	output := func(cmd *exec.Cmd) string {
		t.Helper()
		cmd.Env = append(os.Environ(), socknotify.BackendEnv+"=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	run := func(line string, more ...string) *exec.Cmd {
		args, ok := strings.CutPrefix(line, "go run ./cmd/socknotify ")
		if !ok {
			t.Fatalf("%q is not a socknotify command", line)
		}
		cmd := exec.Command(program, append(strings.Fields(addresses.Replace(args)), more...)...)
		cmd.Env = append(os.Environ(), socknotify.BackendEnv+"=")
		return cmd
	}

	demo := exec.Command("go", strings.Fields(strings.TrimPrefix(commands[1], "go "))...)
	demo.Dir = ".."
	if out := output(demo); strings.Count(out, "  ok") != 3 {
		t.Errorf("the demo says:\n%s", out)
	}
	if commands[2] != testCommand { // which .ci/run runs
		t.Errorf("README.md has %q; want %q", commands[2], testCommand)
	}
	serve := run(commands[3])
	said := started(t, serve)(2)
	at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(said, -1)
	if len(at) != 2 {
		t.Fatalf("the server says\n%s", said)
	}
	addresses = strings.NewReplacer(served, at[0], live, at[1])
	want := blockOf(t, "echo on ")
	plain := func(s string) string { // which depends on the machine
		return regexp.MustCompile(`: \w+, \d+ workers`).ReplaceAllString(s, ": …")
	}
	if plain(said) != plain(addresses.Replace(want)) {
		t.Errorf("the server says\n%sand README.md\n%s", said, want)
	}
	if out := output(run(commands[4], "--duration", "300ms")); !regexp.MustCompile(`(?m)^requests +[1-9]`).MatchString(out) ||
		!regexp.MustCompile(`(?m)^errors +0$`).MatchString(out) {
		t.Errorf("the load says:\n%s", out)
	}
	if out := output(run(commands[5])); !strings.Contains(out, "registrations ") || !strings.Contains(out, "top  live  echo") {
		t.Errorf("top says:\n%s", out)
	}
}

// testCommand is what README.md and .ci/run run to test the library.
const testCommand = "go run ./internal/test"

// quickStart returns the commands of README.md: three that try the project, and three that show a server.
func quickStart(t *testing.T) []string {
	t.Helper()
	text := blockOf(t, "git clone https://github.com/socknotify/socknotify && ") + blockOf(t, "go run ./cmd/socknotify serve echo ")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 6 {
		t.Fatalf("README.md has\n%s", text)
	}
	return lines
}

// blockOf returns the block of README.md that begins with some words.
func blockOf(t *testing.T, begin string) string {
	t.Helper()
	for _, b := range parse("../README.md", read(t, "../README.md")).blocks {
		if strings.HasPrefix(b.text, begin) {
			return b.text
		}
	}
	t.Fatalf("README.md has no block that begins with %q", begin)
	return ""
}

// started starts a server, which ends with the test, and returns a function that reads lines of its standard error.
func started(t *testing.T, cmd *exec.Cmd) (lines func(n int) string) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() }) // ends the reads of one that hangs
	t.Cleanup(func() {
		late.Stop()
		if runtime.GOOS == "windows" {
			cmd.Process.Kill() // where processes cannot be interrupted
			cmd.Wait()
			return
		}
		cmd.Process.Signal(os.Interrupt)
		io.Copy(io.Discard, stderr)
		if err := cmd.Wait(); err != nil || !strings.HasPrefix(stdout.String(), "connections ") {
			t.Errorf("the server's end: %v, %q", err, stdout.String())
		}
	})
	in := bufio.NewReader(stderr)
	return func(n int) (text string) {
		for range n {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			text += line
		}
		return text
	}
}
