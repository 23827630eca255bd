package claims

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/record"
)

func rec(workload string, p param.Params, contender string, f ...record.Figures) record.Record {
	return record.Record{Workload: workload, Params: p, Contender: contender, Samples: f}
}

func cpu(ratios ...float64) (all []record.Figures) {
	for _, r := range ratios {
		all = append(all, record.Figures{CPURatio: r, TotalRatio: (r + 1) / 2, Ns: 100 * r, RateRatio: 1 / r, LatencyRatio: r})
	}
	return all
}

func verdict(t *testing.T, all []Verdict, what string) Verdict {
	t.Helper()
	for _, v := range all {
		if strings.HasPrefix(v.What, what) {
			return v
		}
	}
	t.Fatalf("no claim %q", what)
	return Verdict{}
}

func TestJudge(t *testing.T) {
	p := param.Params{Connections: 100, Size: 64, Cores: 1}
	calls := .4
	overlapped := rec("echo", p, "socknotify/epoll overlapped", cpu(1)...)
	overlapped.Syscalls = &calls
	failed := rec("post", posts(1, 0), "socknotify/epoll", cpu(1)...)
	failed.Missing = "failed"
	all := Judge([]record.Record{
		rec("echo", p, "socknotify/epoll server", cpu(1.2, 1, 1.1)...),
		rec("echo", p, "std", cpu(2, 1.25, 2)...),
		rec("echo", p, "netpoll", cpu(1.5, 4, 4)...),
		rec("echo", p, "go-epoll", cpu(.1, .1, .1)...), // not a peer
		overlapped, failed,
		rec("core", core(1000), drained("epoll"), cpu(1)...),
		rec("core", core(100), drained("epoll"), cpu(1, 1, 1)...),
		rec("core", core(9000), drained("epoll"), cpu(1.4, 1.3, 1.5)...),
		rec("waiters", waiters(1), drained("epoll"), cpu(1, 2, 4)...),
		rec("waiters", waiters(16), drained("epoll"), cpu(1.1, 2, 4.4)...),
	})
	for _, tt := range []struct {
		what   string
		median float64
		rounds int
		holds  bool
	}{
		{"echo, 64 B, 100 connections, one core, package server: CPU to the C", 1.1, 3, true},
		{"echo, 64 B, 100 connections, one core, package server: CPU to the best", .8, 3, true},
		{"event core, one-shot and drained, 100 active of 9000", 1.4, 3, false},
		{"16 waiters: throughput", 1 / 1.1, 3, true},
		{"16 waiters: CPU", 1.05, 3, true},
		{"16 waiters: the event core's part", 1.1, 3, false},
		{"overlapped echo", .4, 1, true},
		{"event core, 100 active: cost", 1.4, 3, false},
		{"post, 1 posters", 0, 0, false},
		{"an idle registration", 0, 0, false},
	} {
		v := verdict(t, all, tt.what)
		if math.Abs(v.Median-tt.median) > 1e-9 || v.Rounds != tt.rounds || v.Holds != tt.holds {
			t.Errorf("%s: %v in %d rounds, holds %v; want %v in %d, %v", v.What, v.Median, v.Rounds, v.Holds, tt.median, tt.rounds, tt.holds)
		}
	}
	table := Table(all).RenderMarkdown()
	for _, want := range []string{"| 1.10 | 0.10 | at most 1.10 | 3 | yes |", "| at least 0.90 |", "| 1.05 | 0.04 | at most 1.50 | 3 | yes |", "| 1.10 | 0.05 | – | 3 | – |", "not measured"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); err == nil {
		t.Error("a folder without results is no error")
	}
	var b strings.Builder
	if err := record.WriteJSON(&b, []record.Record{rec("core", core(100), drained("epoll"), cpu(1.5)...)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "core.json"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if v := verdict(t, Judge(all), "event core, one-shot and drained, 100 active of 100:"); v.Median != 1.5 || v.Holds {
		t.Errorf("%+v", v)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("%v", err)
	}
}
