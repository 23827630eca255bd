// Package claims compares the results of a run with the promises of the project.
package claims

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/record"
	"github.com/socknotify/socknotify/bench/internal/stat"
)

// A Claim is a figure and its limit.
type Claim struct {
	What  string
	Limit float64 // 0: none; the figure explains another one
	Least bool    // the limit is a minimum; otherwise a maximum
	// figure returns the values of the rounds.
	figure func(rs results) []float64
}

// A Verdict is the result of a claim. With no rounds it was not measured.
type Verdict struct {
	Claim
	Median float64
	Spread *float64 // between the quartiles
	Rounds int
	Holds  bool
}

// results are records of all workloads.
type results []record.Record

// of returns the record of a contender, or nil.
func (rs results) of(workload string, p param.Params, contender string) *record.Record {
	for i := range rs {
		if r := &rs[i]; r.Workload == workload && r.Params == p && r.Contender == contender && r.Missing == "" {
			return r
		}
	}
	return nil
}

// Judge returns the verdict of each claim.
func Judge(records []record.Record) []Verdict {
	var all []Verdict
	for _, c := range claims() {
		v := Verdict{Claim: c}
		if values := c.figure(records); len(values) > 0 {
			v.Rounds, v.Median, v.Spread = len(values), stat.Median(values), stat.Spread(values)
			v.Holds = c.Least && v.Median >= c.Limit || !c.Least && v.Median <= c.Limit
		}
		all = append(all, v)
	}
	return all
}

// Read reads the results of all workloads in a folder.
func Read(dir string) ([]record.Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no results in %s", dir)
	}
	var all []record.Record
	for _, name := range files {
		records, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, records...)
	}
	return all, nil
}

func readFile(name string) ([]record.Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return record.Read(f)
}

// Table returns a table of verdicts.
func Table(all []Verdict) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"", "figure", "spread", "limit", "rounds", "holds"})
	right := table.ColumnConfig{Align: text.AlignRight, AlignHeader: text.AlignRight}
	var configs []table.ColumnConfig
	for i := 2; i <= 5; i++ {
		right.Number = i
		configs = append(configs, right)
	}
	t.SetColumnConfigs(configs)
	for _, v := range all {
		t.AppendRow(v.row())
	}
	return t
}

func (v *Verdict) row() table.Row {
	limit := "at most " + number(v.Limit)
	if v.Least {
		limit = "at least " + number(v.Limit)
	}
	if v.Limit == 0 {
		limit = "–"
	}
	if v.Rounds == 0 {
		return table.Row{v.What, "–", "–", limit, 0, "not measured"}
	}
	spread, holds := "–", "no"
	if v.Spread != nil {
		spread = number(*v.Spread)
	}
	switch {
	case v.Limit == 0:
		holds = "–"
	case v.Holds:
		holds = "yes"
	}
	return table.Row{v.What, number(v.Median), spread, limit, v.Rounds, holds}
}

func number(v float64) string {
	if v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Write writes the verdicts for the results in a folder.
func Write(w io.Writer, dir string) error {
	records, err := Read(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, Table(Judge(records)).Render())
	return err
}
