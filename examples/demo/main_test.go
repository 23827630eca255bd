package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// demo runs a command line in this process.
func demo(ctx context.Context, line string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(ctx, strings.Fields(line), &out, &err)
	return status, out.String(), err.String()
}

// decode decodes a JSON object that has only the fields of a report.
func decode(t *testing.T, text string) (r report) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one object: %s", text)
	}
	return r
}

func TestJSON(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		status, out, errs := demo(t.Context(), "-json -backend "+backend+" -clients 5 -messages 7 -workers 3")
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		got := decode(t, out)
		if got.Backend != backend || len(got.Scenarios) != 3 {
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
				t.Errorf("%s: %d bytes, want %d", s.Name, s.Bytes, s.ExpectedBytes)
			}
			if s.Removals != s.ExpectedRemovals || s.Removals != want.clients {
				t.Errorf("%s: %d removals, want %d", s.Name, s.Removals, s.ExpectedRemovals)
			}
			sum := 0
			for _, n := range s.PerWorker {
				sum += n
			}
			if len(s.PerWorker) != want.workers || sum != s.Notifications {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestTable(t *testing.T) {
	backendtest.Need(t)
	status, out, errs := demo(t.Context(), "-clients 4 -workers 2 -messages 3")
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
	}
	if !strings.Contains(out, "of 2 workers handled notifications") {
		t.Errorf("no spread over the workers: %s", out)
	}
}

func TestOneScenario(t *testing.T) {
	backendtest.Need(t)
	for _, name := range []string{"poll", "udp", "tcp"} {
		status, out, errs := demo(t.Context(), "-json -messages 2 "+name)
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		if r := decode(t, out); len(r.Scenarios) != 1 || r.Scenarios[0].Name != name {
			t.Error(out)
		}
	}
}

// A failure is in the output and in the exit status.
func TestFailure(t *testing.T) {
	backendtest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, out, errs := demo(ctx, "-json")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	r := decode(t, out)
	if len(r.Scenarios) != 3 {
		t.Fatal(out)
	}
	for _, s := range r.Scenarios {
		if s.OK || s.Error == "" || s.PerWorker == nil || !strings.Contains(errs, s.Name) {
			t.Errorf("%+v", s)
		}
	}
	if status, out, _ := demo(ctx, ""); status != 1 || strings.Count(out, "FAILED") != 3 {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestVerdict(t *testing.T) {
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
	backendtest.Need(t)
	for _, c := range []struct{ line, want string }{
		{"-clients 0", "-clients 0"},
		{"-clients -1", "-clients -1"},
		{"-clients 999999999", "-clients"},
		{"-clients many", "-clients"},
		{"-messages 0 tcp", "-messages 0"},
		{"-workers 0", "-workers 0"},
		{"-timeout 0s", "-timeout"},
		{"-backend abacus", `WithBackend: backend "abacus" is not available`},
		{"abacus", `"abacus"`},
		{"tcp extra", `"extra"`},
		{"-abacus", "-abacus"},
	} {
		status, out, errs := demo(t.Context(), c.line)
		if status != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, output %q, errors %q", c.line, status, out, errs)
		}
	}
	if status, _, errs := demo(t.Context(), "-help"); status != 0 || !strings.Contains(errs, "-clients") {
		t.Errorf("-help: status %d: %s", status, errs)
	}
}

func TestBackendVariable(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		t.Setenv(socknotify.BackendEnv, backend)
		status, out, errs := demo(t.Context(), "-json poll")
		if r := decode(t, out); status != 0 || r.Backend != backend {
			t.Errorf("status %d, backend %s: %s", status, r.Backend, errs)
		}
	})
	t.Setenv(socknotify.BackendEnv, "abacus")
	if status, _, errs := demo(t.Context(), ""); status != 2 || !strings.Contains(errs, socknotify.BackendEnv) {
		t.Errorf("status %d: %s", status, errs)
	}
}
