package main

import (
	"fmt"
	"strings"
)

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
