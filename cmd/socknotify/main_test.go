package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backends"
	"github.com/socknotify/socknotify/internal/leaks"
)

// asCommand is the environment variable with which the test program is the command.
const asCommand = "SOCKNOTIFY_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	leaks.Main(m)
}

// sh runs a command line in this process.
func sh(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), args, &out, &err)
	return status, out.String(), err.String()
}

// decode reads one JSON object with no fields but those of v.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one object: %s", text)
	}
}

func TestDemoJSON(t *testing.T) {
	backends.Each(t, func(t *testing.T, b string) {
		status, out, errs := sh(t, "demo", "--json", "--backend", b, "--clients", "5", "--messages", "7", "--workers", "3")
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		var got struct {
			Backend   string `json:"backend"`
			Scenarios []struct {
				Name             string   `json:"name"`
				OK               bool     `json:"ok"`
				Workers          int      `json:"workers"`
				Clients          int      `json:"clients"`
				Notifications    int      `json:"notifications"`
				Bytes            int64    `json:"bytes"`
				ExpectedBytes    int64    `json:"expected_bytes"`
				Removals         int      `json:"removals"`
				ExpectedRemovals int      `json:"expected_removals"`
				ElapsedMS        *float64 `json:"elapsed_ms"`
				PerWorker        []int    `json:"per_worker"`
			} `json:"scenarios"`
		}
		decode(t, out, &got)
		if got.Backend != b || len(got.Scenarios) != 3 {
			t.Fatal(out)
		}
		for i, want := range []struct {
			name             string
			workers, clients int
		}{{"poll", 1, 1}, {"udp", 1, 1}, {"tcp", 3, 5}} {
			s := got.Scenarios[i]
			if s.Name != want.name || !s.OK || s.Workers != want.workers || s.Clients != want.clients {
				t.Errorf("%+v, want %+v", s, want)
			}
			if s.Bytes != s.ExpectedBytes || s.Bytes != int64(want.clients*7*64) {
				t.Errorf("%s: %d bytes, expected %d", s.Name, s.Bytes, s.ExpectedBytes)
			}
			if s.Removals != s.ExpectedRemovals || s.Removals != want.clients {
				t.Errorf("%s: %d removals, expected %d", s.Name, s.Removals, s.ExpectedRemovals)
			}
			sum := 0
			for _, n := range s.PerWorker {
				sum += n
			}
			if len(s.PerWorker) != want.workers || sum != s.Notifications || s.ElapsedMS == nil {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestDemoTable(t *testing.T) {
	backends.Need(t)
	status, out, errs := sh(t, "demo", "--clients", "4", "--workers", "2", "--messages", "3")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	lines := strings.Split(out, "\n")
	want := "scenario backend workers clients notifications bytes removals time verdict"
	if got := strings.Join(strings.Fields(lines[0]), " "); got != want {
		t.Errorf("header %q", got)
	}
	for i, name := range []string{"poll", "udp", "tcp"} {
		if f := strings.Fields(lines[i+1]); f[0] != name || f[len(f)-1] != "ok" {
			t.Errorf("line %q", lines[i+1])
		}
		if verdict := strings.Index(lines[0], "verdict"); strings.TrimSpace(lines[i+1][verdict:]) != "ok" {
			t.Errorf("not aligned: %q", lines[i+1])
		}
	}
	if !strings.Contains(out, "tcp: notifications per worker") {
		t.Error("no spread over the workers")
	}
}

func TestDemoOne(t *testing.T) {
	backends.Need(t)
	for _, name := range []string{"poll", "udp", "tcp"} {
		status, out, errs := sh(t, "demo", name, "--json", "--messages", "2")
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		var r report
		decode(t, out, &r)
		if len(r.Scenarios) != 1 || r.Scenarios[0].Name != name {
			t.Error(out)
		}
	}
}

// What fails is in the output as well, and in the exit status.
func TestDemoFails(t *testing.T) {
	backends.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if status := run(ctx, []string{"demo", "--json"}, &out, &errs); status != 1 {
		t.Errorf("status %d", status)
	}
	var r report
	decode(t, out.String(), &r)
	if len(r.Scenarios) != 3 {
		t.Fatal(out.String())
	}
	for _, s := range r.Scenarios {
		if s.OK || s.Error == "" || s.PerWorker == nil || !strings.Contains(errs.String(), s.Name) {
			t.Errorf("%+v", s)
		}
	}
	out.Reset()
	if status := run(ctx, []string{"demo"}, &out, &errs); status != 1 || strings.Count(out.String(), "FAILED") != 3 {
		t.Errorf("status %d: %s", status, out.String())
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		o   outcome
		err error
		ok  bool
	}{
		{outcome{Bytes: 1, ExpectedBytes: 1, Removals: 2, ExpectedRemovals: 2}, nil, true},
		{outcome{Bytes: 1, ExpectedBytes: 2}, nil, false},
		{outcome{Removals: 1}, nil, false},
		{outcome{}, errors.New("broken"), false},
	} {
		o := c.o
		if o.judge(c.err, time.Second); o.OK != c.ok || (o.Error == "") != c.ok || o.ElapsedMS != 1000 {
			t.Errorf("%+v: %+v", c, o)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	backends.Need(t)
	for _, c := range []struct{ args, says string }{
		{"demo --clients 0", "--clients 0"},
		{"demo --clients -1", "--clients -1"},
		{"demo --clients 999999999", "--clients"},
		{"demo --clients many", "--clients"},
		{"demo --messages 0", "--messages 0"},
		{"demo tcp --messages -7", "--messages -7"},
		{"demo --workers 0", "--workers 0"},
		{"demo poll --clients 2", "poll has one"},
		{"demo udp --workers 2", "udp has one"},
		{"demo --timeout 0s", "--timeout"},
		{"demo --backend abacus", `--backend: socknotify: WithBackend: backend "abacus" is not available`},
		{"help abacus", `"abacus"`},
		{"help demo abacus", `"abacus"`},
		{"demo abacus", `"abacus"`},
		{"demo tcp extra", `"extra"`},
		{"demo --abacus", "--abacus"},
		{"info extra", `"extra"`},
		{"abacus", `"abacus"`},
	} {
		status, out, errs := sh(t, strings.Fields(c.args)...)
		if status != 2 || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s: status %d, output %q, errors %q", c.args, status, out, errs)
		}
	}
}

func TestBackendVariable(t *testing.T) {
	backends.Each(t, func(t *testing.T, b string) {
		t.Setenv(socknotify.BackendEnv, b)
		status, out, errs := sh(t, "demo", "poll", "--json")
		var r report
		decode(t, out, &r)
		if status != 0 || r.Backend != b {
			t.Errorf("%s: status %d, backend %s: %s", b, status, r.Backend, errs)
		}
	})
	t.Setenv(socknotify.BackendEnv, "abacus")
	for _, command := range []string{"demo", "info"} {
		if status, _, errs := sh(t, command); status != 2 || !strings.Contains(errs, socknotify.BackendEnv) {
			t.Errorf("%s: status %d: %s", command, status, errs)
		}
	}
}

func TestInfo(t *testing.T) {
	status, out, errs := sh(t, "info", "--json")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	var f facts
	decode(t, out, &f)
	if len(f.Backends) != len(socknotify.Backends()) || f.Versions.Go != runtime.Version() || f.Versions.Module == "" {
		t.Error(out)
	}
	for i, name := range socknotify.Backends() {
		if b := f.Backends[i]; b.Name != name || b.Error != "" {
			t.Errorf("%+v", b)
		}
	}
	if status, out, _ := sh(t, "info"); status != 0 || !strings.Contains(out, runtime.Version()) {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"help"}, {"demo", "--help"}, {"--version"}} {
		if status, out, errs := sh(t, args...); status != 0 || out == "" || errs != "" {
			t.Errorf("%q: status %d, output %q, errors %q", args, status, out, errs)
		}
	}
}
