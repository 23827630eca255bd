package record

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A column of the table. A column that no record has is left out.
type column struct {
	name string
	of   func(r *Record) *float64
	show func(v float64) string
}

var columns = []column{
	{"CPU ratio", func(r *Record) *float64 { return r.CPURatio }, fixed(2)},
	{"spread", func(r *Record) *float64 { return r.Spread }, fixed(2)},
	{"CPU ns", func(r *Record) *float64 { return r.NsPerEvent }, fixed(0)},
	{"with the byte", func(r *Record) *float64 { return r.TotalNs }, fixed(0)},
	{"system calls", func(r *Record) *float64 { return r.Syscalls }, fixed(2)},
	{"switches", func(r *Record) *float64 { return r.Switches }, fixed(3)},
	{"per second", func(r *Record) *float64 { return r.Rate }, fixed(0)},
	{"rate ratio", func(r *Record) *float64 { return r.RateRatio }, fixed(2)},
	{"p50 ns", func(r *Record) *float64 { return r.P50 }, fixed(0)},
	{"p99 ns", func(r *Record) *float64 { return r.P99 }, fixed(0)},
	{"p50 ratio", func(r *Record) *float64 { return r.LatencyRatio }, fixed(2)},
	{"bytes", func(r *Record) *float64 { return r.Bytes }, fixed(0)},
}

func fixed(digits int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
}

// Table returns a table of the records of a workload.
func Table(records []Record) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	var shown []column
	for _, c := range columns {
		for i := range records {
			if c.of(&records[i]) != nil {
				shown = append(shown, c)
				break
			}
		}
	}
	header := table.Row{"parameters", "contender"}
	configs := []table.ColumnConfig{}
	for i, c := range shown {
		header = append(header, c.name)
		configs = append(configs, table.ColumnConfig{Number: i + 3, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	last := ""
	for i := range records {
		r := &records[i]
		if r.Missing != "" {
			continue
		}
		params := r.Params.String()
		if params == last {
			params = ""
		} else if last != "" {
			t.AppendSeparator()
		}
		last = r.Params.String()
		row := table.Row{params, r.Contender}
		for _, c := range shown {
			cell := "–"
			if v := c.of(r); v != nil {
				cell = c.show(*v)
			}
			row = append(row, cell)
		}
		t.AppendRow(row)
	}
	return t
}

// Missing returns a line for each reason for which contenders have no result, with their names.
func Missing(records []Record) []string {
	var reasons []string
	who := map[string][]string{}
	for i := range records {
		r := &records[i]
		if r.Missing == "" {
			continue
		}
		if who[r.Missing] == nil {
			reasons = append(reasons, r.Missing)
		}
		if !slices.Contains(who[r.Missing], r.Contender) {
			who[r.Missing] = append(who[r.Missing], r.Contender)
		}
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(who[reason], ", ") + ": " + reason
	}
	return reasons
}
