package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/socknotify/socknotify/debug"
)

// A topModel is what top shows. It does not depend on the terminal.
type topModel struct {
	where                     string
	port, search, sort, order string
	offset, rows              int
	editing, paused           bool

	now    update
	err    error                // of the latest update
	before map[uint64]debug.Row // the rows of the previous update, by ID
	since  time.Time            // when that was
	// samples are the latest of the port; an update fetches those since the previous one.
	samples []debug.Sample
}

// keptSamples is more than the width of any screen.
const keptSamples = 600

func (m *topModel) query() query {
	w := query{m.port, m.search, m.sort, m.order, m.offset, m.rows, ""}
	if n := len(m.samples); n > 0 && m.port == m.now.port {
		w.after = strconv.FormatUint(m.samples[n-1].Number, 10)
	}
	return w
}

// show stores the result of an update.
func (m *topModel) show(s update) {
	if m.err = s.err; s.err != nil {
		return
	}
	if m.port == "" {
		m.port = s.port
	}
	m.before, m.since = map[uint64]debug.Row{}, m.now.status.Time
	if m.now.port != s.port || !m.now.status.Observed.Equal(s.status.Observed) {
		m.samples = nil // of another port or another observation, whose samples are numbered from the start
	}
	m.samples = append(m.samples, s.history.Samples...)
	m.samples = m.samples[max(len(m.samples)-keptSamples, 0):]
	if m.now.port == s.port {
		for _, r := range m.now.list.Rows {
			m.before[r.ID] = r
		}
	}
	m.now = s
	if m.offset >= s.list.Matched {
		m.offset = 0
	}
}

// fit returns the number of registrations that fit on a screen.
func (m *topModel) fit(width, height int) int {
	return max(height-len(m.header(width, height))-2, 1) // the headings, and the foot
}

// frame returns the lines of a screen, none wider than the screen.
func (m *topModel) frame(width, height int) []string {
	columns := fitColumns(width)
	line := func(text func(*topColumn) string) (s string) {
		for i := range columns {
			s += columns[i].cell(text(&columns[i]))
		}
		return s
	}
	lines := append(m.header(width, height), line(func(c *topColumn) string { return c.title }))
	rows := m.now.list.Rows
	rows = rows[:min(len(rows), max(height-1-len(lines), 0))]
	for _, row := range rows {
		lines = append(lines, line(func(c *topColumn) string { return c.text(m, &row) }))
	}
	lines = append(lines, m.foot(len(rows)))
	for i := range lines {
		lines[i] = cut(strings.TrimRight(lines[i], " "), width)
	}
	return lines[max(len(lines)-max(height, 1), 0):]
}

// header returns the lines above the registrations. A low window has only the first line of counts, which leaves room
// for the registrations.
func (m *topModel) header(width, height int) []string {
	st := &m.now.status
	c, r := &st.Counts, &st.Rates
	saved := "–"
	if enables := r.Rearms + r.FastEnables; enables > 0 {
		saved = fmt.Sprintf("%.1f %%", 100*r.FastEnables/enables)
	}
	lines := []string{fmt.Sprintf("socknotify top  %s at %s  %s  observed %s  %s",
		printable(m.port), m.where, st.Backend, m.observed(), m.health())}
	counts := flow(width, []string{
		fmt.Sprintf("registrations %-8d", c.Registrations),
		fmt.Sprintf("notifications/s %-8s", rate(r.Notifications)),
		fmt.Sprintf("enables/s %-8s", rate(r.Rearms+r.FastEnables)),
		fmt.Sprintf("saved %-8s", saved),
		fmt.Sprintf("wake-ups/s %-8s", rate(r.Wakeups)),
		fmt.Sprintf("queued %-8d", c.Queued),
		fmt.Sprintf("asleep %-6d", c.Waiting),
		fmt.Sprintf("accepted/s %-8s", rate(r.Accepted)),
		fmt.Sprintf("completed/s %-8s", rate(r.Completions)),
		fmt.Sprintf("removals/s %-8s", rate(r.Removals)),
		fmt.Sprintf("posts/s %-8s", rate(r.Posts)),
		fmt.Sprintf("stale/s %-8s", rate(r.Stale)),
	})
	lines = append(lines, counts[:min(len(counts), max(height/4, 2))]...)
	return append(lines,
		"waiters "+m.spread(),
		"notifications/s "+sparkline(m.samples, max(width-len("notifications/s "), 0)),
		"")
}

// flow arranges parts in order in as few lines of a width as possible. A part that is wider has a line of its own.
func flow(width int, parts []string) (lines []string) {
	line := parts[0]
	for _, p := range parts[1:] {
		if longer := line + " " + p; utf8.RuneCountInString(strings.TrimRight(longer, " ")) <= width {
			line = longer
			continue
		}
		lines, line = append(lines, line), p
	}
	return append(lines, line)
}

func (m *topModel) observed() string {
	st := &m.now.status
	if st.Observed.IsZero() {
		return "no"
	}
	return brief(st.Time.Sub(st.Observed))
}

func (m *topModel) health() string {
	switch {
	case m.err != nil:
		return "NO ANSWER: " + printable(m.err.Error())
	case m.now.status.Closed:
		return "CLOSED"
	case m.paused:
		return "paused"
	}
	return "live"
}

// spread returns which share of the notifications each stripe counted, if there were any.
func (m *topModel) spread() string {
	var total uint64
	work := func(p debug.Spread) uint64 { return p.Notifications + p.Removals + p.PostsDequeued }
	for _, p := range m.now.status.Spread {
		total += work(p)
	}
	var parts []string
	for i, p := range m.now.status.Spread {
		if w := work(p); w > 0 || p.Inside > 0 {
			parts = append(parts, fmt.Sprintf("#%d %.1f %% (%d inside)", i+1, 100*float64(w)/float64(max(total, 1)), p.Inside))
		}
	}
	return cmp.Or(strings.Join(parts, "  "), "none")
}

func (m *topModel) foot(shown int) string {
	list := &m.now.list
	to := list.Offset + shown
	s := fmt.Sprintf("%d-%d of %d", min(list.Offset+1, to), to, list.Matched)
	if list.Matched != list.Total {
		s += fmt.Sprintf(" (%d in all)", list.Total)
	}
	s += fmt.Sprintf("  by %s, %s", m.sort, map[string]string{"asc": "rising", "desc": "falling"}[m.order])
	switch {
	case m.editing:
		return s + "  search: " + m.search + "_"
	case m.search != "":
		s += "  search: " + m.search
	}
	return s + "  | q quit  / search  s sort  r reverse  n p pages  Tab port  space pause"
}

// sparkline draws a rate over the latest samples.
func sparkline(samples []debug.Sample, width int) string {
	if len(samples) > width+1 {
		samples = samples[len(samples)-width-1:]
	}
	var rates []float64
	top := 0.0
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		if d := b.Time.Sub(a.Time).Seconds(); d > 0 {
			rates = append(rates, float64(b.Notifications-a.Notifications)/d)
			top = max(top, rates[len(rates)-1])
		}
	}
	const levels = "▁▂▃▄▅▆▇█"
	steps := []rune(levels)
	var b strings.Builder
	for _, r := range rates {
		i := 0
		if top > 0 {
			i = int(r / top * float64(len(steps)-1))
		}
		b.WriteRune(steps[i])
	}
	return b.String()
}

func rate(n float64) string {
	if n > 0 && n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// brief formats a duration in one unit.
func brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f d", d.Hours()/24)
}

// cut shortens a text to a width.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return string([]rune(s)[:width-1]) + "…"
}
