package record_test

import (
	"bytes"
	"encoding/json"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/record"
)

func cpu(ns float64) param.Outcome {
	return param.Outcome{Ops: 100, CPU: 100 * ns, Elapsed: 1e9 / ns, Switches: 50}
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestFill(t *testing.T) {
	calls := 2.5
	first := cpu(20)
	first.Syscalls = &calls
	var r record.Record
	r.Fill([]record.Sample{
		{Before: cpu(10), Value: first, After: cpu(10)},
		{Before: cpu(10), Value: cpu(30), After: cpu(20)},
		{Before: cpu(10), Value: cpu(90), After: cpu(20)},
	})
	near(t, "CPURatio", r.CPURatio, 2)
	near(t, "NsPerEvent", r.NsPerEvent, 30)
	near(t, "Spread", r.Spread, 2) // of 2, 2 and 6
	near(t, "Switches", r.Switches, .5)
	near(t, "Syscalls", r.Syscalls, 2.5)
	if want := (record.Figures{CPURatio: 6, Ns: 90, RateRatio: 6}); len(r.Samples) != 3 || r.Samples[2].CPURatio != want.CPURatio ||
		r.Samples[2].Ns != want.Ns || math.Abs(r.Samples[2].RateRatio-want.RateRatio) > 1e-9 || r.Samples[2].LatencyRatio != 0 {
		t.Errorf("samples %+v, the last of which is to be %+v", r.Samples, want)
	}
	if r.Rounds != 3 || r.Bytes != nil || r.P50 != nil || r.LatencyRatio != nil || r.TotalNs != nil || r.Samples[0].TotalRatio != 0 {
		t.Errorf("%+v", r)
	}
}

// The cost of the byte is subtracted, and reported.
func TestFillTotal(t *testing.T) {
	at := func(total, base float64) param.Outcome {
		o := cpu(total)
		o.Base = base
		return o
	}
	var r record.Record
	r.Fill([]record.Sample{{Before: at(600, 500), Value: at(900, 700), After: at(600, 500)}})
	near(t, "NsPerEvent", r.NsPerEvent, 200)
	near(t, "CPURatio", r.CPURatio, 2)
	near(t, "TotalNs", r.TotalNs, 900)
	near(t, "a sample's", &r.Samples[0].TotalRatio, 1.5)
	if table := record.Table([]record.Record{r}).RenderMarkdown(); !strings.Contains(table, "with the byte") {
		t.Errorf("not in\n%s", table)
	}
}

func TestFillBytes(t *testing.T) {
	bytes := 96.
	var r record.Record
	r.Fill([]record.Sample{{Value: param.Outcome{Ops: 5, Bytes: &bytes}}})
	near(t, "Bytes", r.Bytes, 96)
	if r.CPURatio != nil || r.NsPerEvent != nil || r.Spread != nil {
		t.Errorf("%+v", r)
	}
}

func TestFillLatency(t *testing.T) {
	at := func(p50 float64) param.Outcome {
		o, p99 := cpu(10), 3*p50
		o.P50, o.P99 = &p50, &p99
		return o
	}
	var r record.Record
	r.Fill([]record.Sample{{Before: at(100), Value: at(300), After: at(200)}})
	near(t, "P50", r.P50, 300)
	near(t, "P99", r.P99, 900)
	near(t, "LatencyRatio", r.LatencyRatio, 2)
	near(t, "a sample's", &r.Samples[0].LatencyRatio, 2)
}

func some() []record.Record {
	var all []record.Record
	for _, conns := range []int{100, 1000} {
		for i, name := range []string{"c-epoll level", "std", "socknotify/epoll"} {
			r := record.Record{Workload: "echo", Params: param.Params{Connections: conns, Size: 64}, Contender: name, Reference: "c-epoll level"}
			r.Fill([]record.Sample{{Before: cpu(10), Value: cpu(float64(10 * (i + 1))), After: cpu(10)}})
			all = append(all, r)
		}
		all = append(all,
			record.Record{Workload: "echo", Params: param.Params{Connections: conns, Size: 64}, Contender: "libuv", Missing: "uv.h"},
			record.Record{Workload: "echo", Params: param.Params{Connections: conns, Size: 64}, Contender: "libev", Missing: "uv.h"})
	}
	return all
}

// Every documented field is in every line, null if it was not measured.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := record.WriteJSON(&b, some()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 10 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"workload", "params", "contender", "cpu_ratio", "ns_per_event", "bytes_per_conn",
			"syscalls_per_req", "switches_per_req", "spread"} {
			if _, ok := fields[f]; !ok {
				t.Errorf("no %s in %s", f, line)
			}
		}
		if fields["contender"] == "libuv" && fields["cpu_ratio"] != nil {
			t.Errorf("a ratio of nothing: %s", line)
		}
	}
}

// Read returns the records that WriteJSON has written.
func TestRead(t *testing.T) {
	var b bytes.Buffer
	if err := record.WriteJSON(&b, some()); err != nil {
		t.Fatal(err)
	}
	got, err := record.Read(&b)
	if err != nil || !reflect.DeepEqual(got, some()) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := record.Read(strings.NewReader("{")); err == nil {
		t.Error("half a record is no error")
	}
}

func TestTable(t *testing.T) {
	table := record.Table(some()).RenderMarkdown()
	for _, want := range []string{"connections=100 size=64", "socknotify/epoll", "3.00", "CPU ratio"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	for _, not := range []string{"libuv", "bytes", "p99", "with the byte"} {
		if strings.Contains(table, not) {
			t.Errorf("%q in\n%s", not, table)
		}
	}
}

func TestMissing(t *testing.T) {
	if got := record.Missing(some()); !slices.Equal(got, []string{"libuv, libev: uv.h"}) {
		t.Errorf("%q", got)
	}
}

func TestPlot(t *testing.T) {
	var b bytes.Buffer
	if err := record.Plot(&b, some()); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	colors := map[color.Color]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			colors[color.RGBAModel.Convert(picture.At(x, y))] = true
		}
	}
	for name, c := range map[string]color.Color{"socknotify": color.RGBA{0x1f, 0x77, 0xb4, 0xff}, "the reference": color.RGBA{0x55, 0x55, 0x55, 0xff}} {
		if !colors[c] {
			t.Errorf("no bar of %s", name)
		}
	}
	if err := record.Plot(io.Discard, some()[3:4]); err == nil {
		t.Error("a plot of nothing")
	}
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := record.Save(dir, "echo", "TCP echo", []string{"a machine"}, some()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "echo.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# echo", "- a machine", "![echo](echo.png)", "| 3.00 |", "- libuv, libev: uv.h"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for _, name := range []string{"echo.json", "echo.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
