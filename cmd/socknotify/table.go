package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// table prints the report for people.
func (r *report) table(w io.Writer) error {
	rows := [][]string{{
		"scenario", "backend", "workers", "clients", "notifications", "bytes", "removals", "time", "verdict",
	}}
	for _, o := range r.Scenarios {
		verdict := "ok"
		if !o.OK {
			verdict = "FAILED"
		}
		rows = append(rows, []string{
			o.Name, r.Backend, fmt.Sprint(o.Workers), fmt.Sprint(o.Clients), fmt.Sprint(o.Notifications),
			fmt.Sprint(o.Bytes), fmt.Sprint(o.Removals), fmt.Sprintf("%.1f ms", o.ElapsedMS), verdict,
		})
	}
	text := align(rows)
	for _, o := range r.Scenarios {
		if o.Workers > 1 && len(o.PerWorker) > 0 {
			text += o.spread()
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// align lays rows out in columns: numbers to the right, the two names and the verdict to the left.
func align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i < 2 || i == len(row)-1 {
				fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
			} else {
				fmt.Fprintf(&line, "%*s  ", widths[i], cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// spread tells how a scenario's notifications went to its workers, sixteen to a line.
func (o *outcome) spread() string {
	busy := 0
	for _, n := range o.PerWorker {
		if n > 0 {
			busy++
		}
	}
	least, most := slices.Min(o.PerWorker), slices.Max(o.PerWorker)
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: notifications per worker; %d of %d workers had some, least %d, most %d\n",
		o.Name, busy, len(o.PerWorker), least, most)
	width := len(fmt.Sprint(most))
	for line := range slices.Chunk(o.PerWorker, 16) {
		for _, n := range line {
			fmt.Fprintf(&b, "  %*d", width, n)
		}
		b.WriteString("\n")
	}
	return b.String()
}
