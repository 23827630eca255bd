package main

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/socknotify/socknotify/debug"
)

// A topColumn is one column of the registrations.
type topColumn struct {
	title string
	width int
	right bool // aligned to the right
	drop  int  // a narrow window omits columns with the highest numbers first; 0 is never omitted
	text  func(m *topModel, r *debug.Row) string
}

const (
	keyColumn = 1
	between   = 2 // spaces
)

func topColumns() []topColumn {
	return []topColumn{
		{"socket", 6, true, 0, func(m *topModel, r *debug.Row) string { return fmt.Sprint(r.Socket) }},
		{"key", 12, false, 0, func(m *topModel, r *debug.Row) string { return printable(r.Key) }},
		{"local", 21, false, 5, func(m *topModel, r *debug.Row) string { return printable(cmp.Or(r.Local, r.Network)) }},
		{"remote", 21, false, 2, func(m *topModel, r *debug.Row) string { return printable(r.Remote) }},
		{"filter", 13, false, 3, func(m *topModel, r *debug.Row) string { return r.Filter }},
		{"trigger", 16, false, 6, func(m *topModel, r *debug.Row) string { return strings.ReplaceAll(r.Trigger, "|", " ") }},
		{"state", 9, false, 0, func(m *topModel, r *debug.Row) string { return r.State }},
		{"notified", 9, true, 0, func(m *topModel, r *debug.Row) string { return fmt.Sprint(r.Notifications) }},
		{"/s", 7, true, 1, (*topModel).perSecond},
		{"last", 15, false, 0, func(m *topModel, r *debug.Row) string {
			if r.LastTime.IsZero() {
				return "never"
			}
			return r.Last + " " + brief(m.now.status.Time.Sub(r.LastTime))
		}},
		{"age", 7, true, 4, func(m *topModel, r *debug.Row) string {
			if r.Since.IsZero() {
				return ""
			}
			return brief(m.now.status.Time.Sub(r.Since))
		}},
	}
}

// perSecond returns a rate of a row since the previous update.
func (m *topModel) perSecond(r *debug.Row) string {
	was, ok := m.before[r.ID]
	if d := m.now.status.Time.Sub(m.since).Seconds(); ok && d > 0 {
		return rate(float64(r.Notifications-was.Notifications) / d)
	}
	return ""
}

// fitColumns omits columns until the rest fit, and gives the remaining width to the key.
func fitColumns(width int) []topColumn {
	columns := topColumns()
	for {
		need, worst := 0, 0
		for i, c := range columns {
			need += c.width + between
			if c.drop > columns[worst].drop {
				worst = i
			}
		}
		if need-between <= width || columns[worst].drop == 0 {
			columns[keyColumn].width += min(max(width-need+between, 0), 40)
			return columns
		}
		columns = append(columns[:worst], columns[worst+1:]...)
	}
}

// cell returns a text padded to the width of a column and the space after it.
func (c *topColumn) cell(s string) string {
	s = cut(s, c.width)
	pad := strings.Repeat(" ", c.width-utf8.RuneCountInString(s))
	if c.right {
		return pad + s + strings.Repeat(" ", between)
	}
	return s + pad + strings.Repeat(" ", between)
}
