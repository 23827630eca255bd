package docs_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The comparison's table of CPU time is that of all recorded runs: docs/bench/echo.json and docs/bench/runs/*.json.
func TestCPUTable(t *testing.T) {
	runs, err := filepath.Glob("bench/runs/*.json")
	if err != nil {
		t.Fatal(err)
	}
	runs = append(runs, "bench/echo.json")
	type params struct{ Connections, Size, Depth, Busy, Cores int }
	ratios := map[string]map[params][]float64{} // by contender
	for _, path := range runs {
		for line := range strings.Lines(read(t, path)) {
			var r struct {
				Params    params
				Contender string
				Ratio     float64 `json:"cpu_ratio"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if ratios[r.Contender] == nil {
				ratios[r.Contender] = map[params][]float64{}
			}
			if r.Ratio > 0 { // it is null where a contender is missing
				ratios[r.Contender][r.Params] = append(ratios[r.Contender][r.Params], r.Ratio)
			}
		}
	}
	var want strings.Builder
	fmt.Fprintf(&want, "\n| multiple of C's CPU time; recorded runs: %d | 100 connections | 1,000 connections |\n| --- | --- | --- |\n", len(runs))
	for _, row := range [][2]string{
		{"package server", "socknotify/epoll server"},
		{"a port by hand", "socknotify/epoll"},
		{"an epoll loop by hand, in Go", "go-epoll"},
		{"libuv, in C", "libuv"},
		{"netpoll", "netpoll"},
		{"package net, a goroutine for each connection", "std"},
	} {
		fmt.Fprintf(&want, "| %s |", row[0])
		for _, n := range []int{100, 1000} {
			of := ratios[row[1]][params{Connections: n, Size: 64, Cores: 1}]
			if len(of) != len(runs) {
				t.Fatalf("%d runs have %s with %d connections; there are %d runs", len(of), row[1], n, len(runs))
			}
			cell := fmt.Sprintf("%.2f", slices.Min(of))
			if most := fmt.Sprintf("%.2f", slices.Max(of)); most != cell {
				cell += " to " + most
			}
			fmt.Fprintf(&want, " %s |", cell)
		}
		want.WriteString("\n")
	}
	if !strings.Contains(read(t, "comparison.md"), want.String()+"\n") {
		t.Errorf("comparison.md does not have this table:%s", want.String())
	}
}
