//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/bench/internal/record"
	"github.com/socknotify/socknotify/bench/internal/suite"
	"github.com/socknotify/socknotify/internal/test/await"
)

// The test program is also the contenders and the load generator.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"contend", "load", "redis-server", "window"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestLongFlags(t *testing.T) {
	got := longFlags([]string{"echo", "-quick", "--json", "-out", "x", "-h", "-", "--", "-quick"})
	want := []string{"echo", "--quick", "--json", "--out", "x", "-h", "-", "--", "-quick"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func bench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, diag bytes.Buffer
	cmd := rootCommand()
	cmd.SetArgs(longFlags(args))
	cmd.SetOut(&out)
	cmd.SetErr(&diag)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), diag.String(), err
}

func TestBadUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"nothing"}, `no workload "nothing"`},
		{[]string{"-rounds", "-1"}, "-rounds"},
		{[]string{"-window", "1us"}, "-window"},
		{[]string{"-external", "x=/nonexistent"}, "/nonexistent"},
		{[]string{"contend", "echo", "unknown", "{}", "1"}, `no contender "unknown"`},
		{[]string{"contend", "core", "go-epoll", "{", "1"}, "parameters"},
		{[]string{"contend", "core", "go-epoll", `{"registered":3,"active":4}`, "1"}, "4 active of 3"},
	} {
		if _, _, err := bench(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// allowed reports whether a contender may be missing: its library or the C compiler is not installed.
func allowed(r record.Record) bool {
	return strings.HasPrefix(r.Missing, "go get does not bring it") ||
		strings.HasPrefix(r.Missing, "no C compiler") ||
		(r.Contender == "libevent" || r.Contender == "libuv") && !strings.HasPrefix(r.Missing, "failed: ")
}

// subtracted are the workloads from whose CPU time the cost of the byte is subtracted.
var subtracted = map[string]bool{"core": true, "waiters": true}

// Each contender runs each of its workloads.
func TestEveryContender(t *testing.T) {
	for _, w := range suite.Workloads() {
		t.Run(w.Name, func(t *testing.T) {
			dir := t.TempDir()
			stdout, stderr, err := bench(t, w.Name, "-quick", "-window", "20ms", "-json", "-out", dir)
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			measured := 0
			for line := range strings.Lines(stdout) {
				var r record.Record
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				switch {
				case r.Missing != "":
					if !allowed(r) {
						t.Errorf("%s %v: %s", r.Contender, r.Params, r.Missing)
					}
				case w.Name == "idle" && r.Bytes == nil, w.Name != "idle" && (r.NsPerEvent == nil || *r.Rate <= 0):
					t.Errorf("no figures: %s", line)
				case subtracted[w.Name] && (r.TotalNs == nil || *r.TotalNs <= *r.NsPerEvent):
					t.Errorf("the cost of the byte is not subtracted: %s", line)
				default:
					measured++
				}
			}
			if measured < 3 {
				t.Errorf("%d measured:\n%s", measured, stdout)
			}
			for _, name := range []string{w.Name + ".json", w.Name + ".md", w.Name + ".png", "README.md"} {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func external(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "server")
	script := fmt.Sprintf("#!/bin/sh\nexec %q contend echo std '{}' 0\n", self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// An external program takes part. Without -json a table is printed, and no files are written.
func TestExternal(t *testing.T) {
	stdout, stderr, err := bench(t, "accept", "-quick", "-window", "5ms", "-external", "mine="+external(t))
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	row := ""
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, " mine ") {
			row = line
		}
	}
	if row == "" || !strings.Contains(stdout, "CPU RATIO") {
		t.Errorf("no row of the external program:\n%s", stdout)
	}
}

func TestOnly(t *testing.T) {
	stdout, stderr, err := bench(t, "post", "-quick", "-window", "1ms", "-only", "posters=1 ", "-json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.Contains(stdout, `"posters":1,`) || strings.Contains(stdout, `"posters":4,`) {
		t.Errorf("%s", stdout)
	}
}

func TestContender(t *testing.T) {
	stdout, stderr, err := bench(t, "core", "-quick", "-window", "1ms", "-only", "cores=1", "-contender", "oneshot+drained", "-json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	chosen := 0
	for line := range strings.Lines(stdout) {
		var r record.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Contender == r.Reference {
			continue
		}
		if chosen++; !strings.Contains(r.Contender, "oneshot+drained") {
			t.Error(line)
		}
	}
	if chosen == 0 {
		t.Errorf("%s\n%s", stdout, stderr)
	}
}

func TestList(t *testing.T) {
	stdout, _, err := bench(t, "-list", "core")
	if err != nil || !strings.Contains(stdout, "socknotify/epoll oneshot+drained\n") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// A run keeps the results of earlier runs of other workloads. The index and the summary have both.
func TestIndex(t *testing.T) {
	dir := t.TempDir()
	for _, w := range []string{"idle", "post"} {
		if _, stderr, err := bench(t, w, "-quick", "-window", "1ms", "-only", map[string]string{"idle": "registration"}[w], "-out", dir); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
	}
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[idle](idle.md)", "[post](post.md)", "| an idle registration: live bytes of the port |", "| not measured |"} {
		if !strings.Contains(string(index), want) {
			t.Errorf("no %q in\n%s", want, index)
		}
	}
	stdout, _, err := bench(t, "-summary", dir)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "post, 1 posters") == strings.Contains(line, "not measured") && strings.Contains(line, "post, 1 ") {
			t.Errorf("%s", line)
		}
	}
	if _, _, err := bench(t, "-summary", t.TempDir()); err == nil {
		t.Error("no error for a folder without results")
	}
}

// The results measured before an interruption are kept, and the page says that they are incomplete.
func TestInterruptedKeepsResults(t *testing.T) {
	dir := t.TempDir()
	cmd := rootCommand()
	cmd.SetArgs([]string{"post", "--out", dir, "--window", "1ms", "--rounds", "1"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(writer(func(b []byte) {
		if bytes.Contains(b, []byte("post posters=4 batch")) { // which is done
			cancel()
		}
	}))
	if err := cmd.ExecuteContext(ctx); err == nil {
		t.Error("no error")
	}
	page, err := os.ReadFile(filepath.Join(dir, "post.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "5 of 12 sets of parameters so far") || !strings.Contains(string(page), "posters=4 batch") {
		t.Errorf("%s", page)
	}
	if _, err := os.Stat(filepath.Join(dir, "README.md")); err != nil {
		t.Error(err)
	}
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// A run that is interrupted ends soon with an error.
func TestInterrupted(t *testing.T) {
	cmd := rootCommand()
	cmd.SetArgs([]string{"core", "--out", t.TempDir(), "--window", "10ms"})
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	if await.Receive(t, "the run ends", done) == nil {
		t.Error("no error")
	}
}
