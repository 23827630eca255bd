package docs_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The comparison's table of CPU time is that of all recorded runs: docs/bench/echo.txt and
// docs/bench/runs/*.txt.
func TestCPUTable(t *testing.T) {
	runs, err := filepath.Glob("bench/runs/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	runs = append(runs, "bench/echo.txt")
	ratios := map[string][]float64{} // the medians of the runs, by benchmark
	for _, path := range runs {
		samples := map[string][]float64{}
		for line := range strings.Lines(read(t, path)) {
			fields := strings.Fields(line)
			i := slices.Index(fields, "cpu-ratio")
			if i < 0 {
				continue
			}
			ratio, err := strconv.ParseFloat(fields[i-1], 64)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			samples[fields[0]] = append(samples[fields[0]], ratio)
		}
		for name, all := range samples {
			slices.Sort(all)
			ratios[name] = append(ratios[name], (all[(len(all)-1)/2]+all[len(all)/2])/2)
		}
	}
	var want strings.Builder
	fmt.Fprintf(&want, "\n| multiple of C's CPU time; recorded runs: %d | 100 connections | 1,000 connections |\n| --- | --- | --- |\n", len(runs))
	for _, row := range [][2]string{
		{"package server", "socknotify-epoll-server"},
		{"a port by hand", "socknotify-epoll"},
		{"an epoll loop by hand, in Go", "go-epoll"},
		{"libuv, in C", "libuv"},
		{"netpoll", "netpoll"},
		{"package net, a goroutine for each connection", "std"},
	} {
		fmt.Fprintf(&want, "| %s |", row[0])
		for _, n := range []int{100, 1000} {
			of := ratios[fmt.Sprintf("BenchmarkEcho/connections=%d/size=64/cores=1/contender=%s", n, row[1])]
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
