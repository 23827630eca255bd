package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/table"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"

	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/metrics"
)

// A topModel is what top shows, and a tea.Model.
type topModel struct {
	ctx      context.Context
	client   *debugClient
	interval time.Duration

	port, sort, order string
	offset            int
	paused            bool
	width, height     int
	fetching, again   bool

	table  table.Model
	search textinput.Model
	help   help.Model

	now          update
	err          error                    // of the latest update
	before       map[uint64]debugdata.Row // the rows of the previous update, by ID
	since        time.Time                // when that was
	serverBefore *debugdata.ServerView
	// samples are the latest of the port; an update fetches those since the previous one.
	samples []debugdata.Sample
}

// keptSamples is more than the width of any screen.
const keptSamples = 600

var (
	titleStyle = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	faintStyle = lipgloss.NewStyle().Faint(true)
	valueStyle = lipgloss.NewStyle().Bold(true)
	alarmStyle = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red)
	liveStyle  = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

func newTopModel(ctx context.Context, c *debugClient, interval time.Duration) *topModel {
	m := &topModel{ctx: ctx, client: c, interval: interval, sort: "notifications", order: "desc", help: help.New(), search: textinput.New()}
	m.search.Prompt = "search: "
	m.search.SetVirtualCursor(true)
	m.table = table.New(table.WithFocused(true))
	styles := table.DefaultStyles()
	styles.Header = styles.Header.Foreground(lipgloss.Cyan).Padding(0, 1)
	styles.Selected = lipgloss.NewStyle().Reverse(true)
	m.table.SetStyles(styles)
	m.table.KeyMap = table.KeyMap{LineUp: key.NewBinding(key.WithKeys("up", "k")), LineDown: key.NewBinding(key.WithKeys("down", "j"))}
	return m
}

type tickMsg struct{}

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
}

// fetch requests an update, after the present one if there is one.
func (m *topModel) fetch() tea.Cmd {
	if m.again = m.fetching; m.fetching {
		return nil
	}
	m.fetching = true
	w := m.query()
	return func() tea.Msg { return m.client.fetch(m.ctx, w) }
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.tick(), m.fetch()) }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
		return m, m.fetch()
	case tickMsg:
		if m.paused {
			return m, m.tick()
		}
		return m, tea.Batch(m.tick(), m.fetch())
	case update:
		m.fetching = false
		m.show(msg)
		if m.again {
			return m, m.fetch()
		}
		return m, nil
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

// press acts on a key.
func (m *topModel) press(msg tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	if m.search.Focused() && msg.String() != "ctrl+c" {
		switch msg.String() {
		case "enter":
			m.search.Blur()
			return m, nil
		case "esc":
			m.search.Blur()
			m.search.SetValue("")
		}
		was := m.search.Value()
		var cmd tea.Cmd
		m.search, cmd = m.search.Update(msg)
		if m.search.Value() == was && msg.String() != "esc" {
			return m, cmd
		}
		m.offset = 0
		return m, tea.Batch(cmd, m.fetch())
	}
	page := m.rows()
	switch {
	case key.Matches(msg, topKeys.quit):
		return m, tea.Quit
	case key.Matches(msg, topKeys.search):
		return m, m.search.Focus()
	case msg.String() == "esc":
		m.search.SetValue("")
		m.offset = 0
	case key.Matches(msg, topKeys.sort):
		i := slices.Index(topSorts[:], m.sort)
		m.sort, m.offset = topSorts[(i+1)%len(topSorts)], 0
	case key.Matches(msg, topKeys.reverse):
		m.order, m.offset = map[string]string{"asc": "desc", "desc": "asc"}[m.order], 0
	case key.Matches(msg, topKeys.next):
		if m.offset+page >= m.now.Registrations.Matched {
			return m, nil
		}
		m.offset += page
	case key.Matches(msg, topKeys.previous):
		m.offset = max(m.offset-page, 0)
	case key.Matches(msg, topKeys.port):
		m.nextPort()
	case key.Matches(msg, topKeys.pause):
		m.paused = !m.paused
		return m, nil
	case key.Matches(msg, topKeys.help):
		m.help.ShowAll = !m.help.ShowAll
		m.layout()
		return m, nil
	default:
		var cmd tea.Cmd
		m.table, cmd = m.table.Update(msg)
		return m, cmd
	}
	return m, m.fetch()
}

// topSorts are the columns that s goes through.
var topSorts = [...]string{"notifications", "last", "socket", "key", "local", "remote", "state", "since"}

func (m *topModel) nextPort() {
	all := m.now.ports.Ports
	i := slices.IndexFunc(all, func(p debugdata.PortName) bool { return p.Name == m.port })
	if i >= 0 {
		m.port, m.offset = all[(i+1)%len(all)].Name, 0
	}
}

func (m *topModel) query() query {
	w := query{m.port, m.search.Value(), m.sort, m.order, m.offset, m.rows(), "", ""}
	if m.now.server != nil {
		w.server = m.now.server.Server
	}
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
	m.before, m.since = map[uint64]debugdata.Row{}, m.now.Status.Time
	if m.now.port != s.port || !m.now.Status.Observed.Equal(s.Status.Observed) {
		m.samples = nil // of another port or another observation, whose samples are numbered from the start
	}
	m.samples = append(m.samples, s.History.Samples...)
	m.samples = m.samples[max(len(m.samples)-keptSamples, 0):]
	if m.now.port == s.port {
		for _, r := range m.now.Registrations.Rows {
			m.before[r.ID] = r
		}
	}
	if m.serverBefore = m.now.server; m.serverBefore != nil && (s.server == nil || m.serverBefore.Server != s.server.Server || !m.serverBefore.Observed.Equal(s.server.Observed)) {
		m.serverBefore = nil
	}
	if s.server != nil {
		if n := len(s.server.Samples); m.serverBefore == nil && n > 0 { // the first rates are those of the last seconds
			then := &s.server.Samples[max(n-6, 0)]
			m.serverBefore = &debugdata.ServerView{Time: then.Time, Counts: then.ServerCounts}
		}
		s.server.Samples = nil
	}
	m.now = s
	if m.offset >= s.Registrations.Matched {
		m.offset = 0
	}
	m.layout()
}

// resize sets the size of the window.
func (m *topModel) resize(width, height int) {
	m.width, m.height = max(width, 1), max(height, 1)
	m.help.SetWidth(m.width)
	m.layout()
}

// layout gives the table the room that is left, and its contents.
func (m *topModel) layout() {
	widths := fitColumns(m.width)
	columns := make([]table.Column, len(widths))
	rows := make([]table.Row, 0, len(m.now.Registrations.Rows))
	for i, c := range topColumns {
		columns[i] = table.Column{Title: c.pad(c.title, widths[i]), Width: widths[i]}
	}
	for i := range m.now.Registrations.Rows {
		row := make(table.Row, len(topColumns))
		for j, c := range topColumns {
			row[j] = c.pad(c.text(m, &m.now.Registrations.Rows[i]), widths[j])
		}
		rows = append(rows, row)
	}
	rows = rows[:min(len(rows), m.rows())]
	marked := max(m.table.Cursor(), 0)
	m.table.SetRows(nil) // the columns may be fewer than before
	m.table.SetColumns(columns)
	m.table.SetRows(rows)
	m.table.SetWidth(m.width)
	m.table.SetHeight(m.rows() + 1)
	m.table.SetCursor(min(marked, max(len(rows)-1, 0))) // without rows there was none
}

// rows returns the number of registrations that fit.
func (m *topModel) rows() int {
	return max(m.height-lipgloss.Height(m.head())-1-lipgloss.Height(m.foot()), 1)
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen, v.WindowTitle = true, "socknotify top"
	return v
}

// frame returns the contents of the window.
func (m *topModel) frame() string {
	body := m.table.View()
	if m.height < lipgloss.Height(m.head())+4 {
		body = ""
	}
	text := lipgloss.JoinVertical(lipgloss.Left, m.head(), body, m.foot())
	return lipgloss.NewStyle().MaxWidth(m.width).MaxHeight(m.height).Render(text)
}

// A figure is one number with its name.
type figure struct {
	name, value string
	alarm       bool
}

// flow arranges figures in as few lines as possible. A low window has fewer lines, which leaves
// room for the rest.
func (m *topModel) flow(figures []figure) string {
	var lines []string
	line := ""
	for _, f := range figures {
		style := valueStyle
		if f.alarm {
			style = alarmStyle
		}
		part := faintStyle.Render(f.name) + " " + style.Render(f.value)
		if line != "" && lipgloss.Width(line)+3+lipgloss.Width(part) > m.width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += "   "
		}
		line += part
	}
	lines = append(lines, line)
	return strings.Join(lines[:min(len(lines), max(m.height/4, 1))], "\n")
}

// head returns what stands above the registrations.
func (m *topModel) head() string {
	st := &m.now.Status
	title := fmt.Sprintf("%s at %s", printable(cmp.Or(m.port, "no port")), m.where())
	if s := m.now.server; s != nil {
		title = printable(s.Server) + " (" + s.Kind + "), port " + title
	}
	// What may be long comes last: a narrow window cuts it.
	parts := []string{titleStyle.Render("socknotify top") + "  " + m.health() + "  " + title + "  " + st.Backend}
	if m.now.server != nil {
		parts = append(parts, m.flow(m.serverFigures()))
	}
	parts = append(parts, m.flow(append(m.portFigures(), m.processFigures()...)))
	if rates := sparkline(m.samples, max(m.width-len("notifications/s "), 0)); rates != "" && m.height >= 12 {
		parts = append(parts, faintStyle.Render("notifications/s ")+liveStyle.Render(rates))
	}
	return lipgloss.JoinVertical(lipgloss.Left, parts...)
}

func (m *topModel) where() string {
	if m.client == nil {
		return "?"
	}
	return m.client.base.Host
}

// serverFigures are what an engineer of a service asks for first.
func (m *topModel) serverFigures() []figure {
	s := m.now.server
	c := &s.Counts
	per := func(read func(*debugdata.ServerCounts) uint64) float64 {
		if m.serverBefore == nil || !s.Time.After(m.serverBefore.Time) {
			return 0
		}
		return float64(read(c)-min(read(&m.serverBefore.Counts), read(c))) / s.Time.Sub(m.serverBefore.Time).Seconds()
	}
	count := func(n uint64) string { return humanize.Comma(int64(n)) }
	var out []figure
	if s.Kind == "server.Server" {
		out = append(out, figure{"connections", count(uint64(c.Conns)), false})
	} else {
		out = append(out, figure{"parked", count(uint64(c.Parked)), false}, figure{"waiting", count(uint64(c.Waiting)), c.Waiting > 0})
	}
	out = append(out, figure{"requests/s", rate(per(func(c *debugdata.ServerCounts) uint64 { return c.Calls })), false})
	if s.Kind == "server.Server" {
		out = append(out,
			figure{"received/s", bytesOf(per(func(c *debugdata.ServerCounts) uint64 { return c.BytesIn })), false},
			figure{"sent/s", bytesOf(per(func(c *debugdata.ServerCounts) uint64 { return c.BytesOut })), false},
			figure{"queued", bytesOf(float64(c.QueuedBytes)), false})
	}
	if h := callTime(c.CallTime); h.Count() > 0 {
		if m.serverBefore != nil {
			if recent := h.Sub(callTime(m.serverBefore.Counts.CallTime)); recent.Count() > 0 && recent.Count() <= h.Count() {
				h = recent
			}
		}
		out = append(out, figure{"handler time", short(h.Quantile(.5)) + ", slowest 1 % " + short(h.Quantile(.99)), false})
	}
	out = append(out, figure{"busy workers", fmt.Sprintf("%d of %d", c.Running, c.Workers), false},
		figure{"refused", count(c.Refused + c.BadPreambles), c.Refused+c.BadPreambles > 0},
		figure{"timeouts", count(c.Idle + c.Slow + c.Stalled + c.LateHandshakes), false})
	if c.Handshakes+c.FailedHandshakes > 0 {
		out = append(out, figure{"TLS handshakes", count(c.Handshakes) + ", " + count(c.FailedHandshakes) + " failed", false})
	}
	if c.UnparkedHTTP2 > 0 {
		out = append(out, figure{"unparked HTTP/2", count(c.UnparkedHTTP2), true})
	}
	if c.Unparkable > 0 {
		out = append(out, figure{"unparkable", count(c.Unparkable), true})
	}
	return append(out, figure{"faults", count(c.Panics + c.Stuck), c.Panics+c.Stuck > 0})
}

func callTime(t *debugdata.Times) (h metrics.Histogram) {
	if t != nil {
		h.Sum = time.Duration(t.Seconds * float64(time.Second))
		copy(h.Buckets[:], t.Buckets)
	}
	return h
}

// portFigures are the inside of the port.
func (m *topModel) portFigures() []figure {
	st := &m.now.Status
	c, r := &st.Counts, &st.Rates
	saved := "–"
	if enables := r.Rearms + r.FastEnables; enables > 0 {
		saved = fmt.Sprintf("%.1f %%", 100*r.FastEnables/enables)
	}
	return []figure{
		{"registrations", humanize.Comma(c.Registrations), false}, {"notifications/s", rate(r.Notifications), false},
		{"enables/s", rate(r.Rearms + r.FastEnables), false}, {"saved", saved, false}, {"wake-ups/s", rate(r.Wakeups), false},
		{"queued", humanize.Comma(c.Queued), false}, {"asleep", strconv.Itoa(c.Waiting), false}, {"accepted/s", rate(r.Accepted), false},
		{"completed/s", rate(r.Completions), false}, {"removals/s", rate(r.Removals), false}, {"posts/s", rate(r.Posts), false},
		{"stale/s", rate(r.Stale), false},
	}
}

// processFigures are those of the whole process. A page of an older version has none.
func (m *topModel) processFigures() []figure {
	p := &m.now.Process
	if m.now.server != nil {
		p = &m.now.server.Process
	}
	if p.Counts.Goroutines == 0 {
		return nil
	}
	return []figure{
		{"goroutines", humanize.Comma(int64(p.Counts.Goroutines)), false},
		{"memory", bytesOf(float64(p.Counts.Memory)), false},
	}
}

func (m *topModel) health() string {
	switch {
	case m.err != nil:
		return alarmStyle.Render("NO ANSWER: " + printable(m.err.Error()))
	case m.now.Status.Closed:
		return alarmStyle.Render("CLOSED")
	case m.paused:
		return faintStyle.Render("paused")
	}
	return liveStyle.Render("live")
}

// foot returns what stands below the registrations.
func (m *topModel) foot() string {
	list := &m.now.Registrations
	to := list.Offset + len(m.table.Rows())
	s := fmt.Sprintf("%d-%d of %d", min(list.Offset+1, to), to, list.Matched)
	if list.Matched != list.Total {
		s += fmt.Sprintf(" (%d in all)", list.Total)
	}
	s += fmt.Sprintf("  by %s, %s", m.sort, map[string]string{"asc": "rising", "desc": "falling"}[m.order])
	if m.search.Focused() {
		s += "  " + m.search.View()
	} else if m.search.Value() != "" {
		s += "  search: " + m.search.Value()
	}
	if m.width < 40 || m.height < 8 {
		return s
	}
	return s + "\n" + m.help.View(topKeys)
}

// A topColumn is one column of the registrations.
type topColumn struct {
	title string
	width int
	right bool // aligned to the right
	drop  int  // a narrow window omits columns with the highest numbers first; 0 is never omitted
	text  func(m *topModel, r *debugdata.Row) string
}

const keyColumn = 1

var topColumns = []topColumn{
	{"socket", 6, true, 0, func(m *topModel, r *debugdata.Row) string { return fmt.Sprint(r.Socket) }},
	{"key", 12, false, 0, func(m *topModel, r *debugdata.Row) string { return printable(r.Key) }},
	{"local", 21, false, 5, func(m *topModel, r *debugdata.Row) string { return printable(cmp.Or(r.Local, r.Network)) }},
	{"remote", 21, false, 2, func(m *topModel, r *debugdata.Row) string { return printable(r.Remote) }},
	{"filter", 13, false, 3, func(m *topModel, r *debugdata.Row) string { return r.Filter }},
	{"trigger", 16, false, 6, func(m *topModel, r *debugdata.Row) string { return strings.ReplaceAll(r.Trigger, "|", " ") }},
	{"state", 9, false, 0, func(m *topModel, r *debugdata.Row) string { return r.State }},
	{"notified", 9, true, 0, func(m *topModel, r *debugdata.Row) string { return fmt.Sprint(r.Notifications) }},
	{"/s", 7, true, 1, (*topModel).perSecond},
	{"last", 15, false, 0, func(m *topModel, r *debugdata.Row) string {
		if r.LastTime.IsZero() {
			return "never"
		}
		return r.Last + " " + brief(m.now.Status.Time.Sub(r.LastTime))
	}},
	{"age", 7, true, 4, func(m *topModel, r *debugdata.Row) string {
		if r.Since.IsZero() {
			return ""
		}
		return brief(m.now.Status.Time.Sub(r.Since))
	}},
}

// pad aligns a text to the right where the column is.
func (c *topColumn) pad(s string, width int) string {
	if c.right {
		return fmt.Sprintf("%*s", width, s)
	}
	return s
}

// perSecond returns a rate of a row since the previous update.
func (m *topModel) perSecond(r *debugdata.Row) string {
	was, ok := m.before[r.ID]
	if d := m.now.Status.Time.Sub(m.since).Seconds(); ok && d > 0 {
		return rate(float64(r.Notifications-was.Notifications) / d)
	}
	return ""
}

// fitColumns returns the widths of the columns, 0 for those that are omitted. The key gets the
// width that is left.
func fitColumns(width int) []int {
	const padding = 2
	widths := make([]int, len(topColumns))
	left := width
	for i, c := range topColumns {
		widths[i] = c.width
		left -= c.width + padding
	}
	for left < 0 {
		worst := 0
		for i, c := range topColumns {
			if widths[i] > 0 && c.drop > topColumns[worst].drop {
				worst = i
			}
		}
		if topColumns[worst].drop == 0 {
			return widths
		}
		left += widths[worst] + padding
		widths[worst] = 0
	}
	widths[keyColumn] += min(left, 40)
	return widths
}

// sparkline draws a rate over the latest samples.
func sparkline(samples []debugdata.Sample, width int) string {
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
	steps := []rune("▁▂▃▄▅▆▇█")
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
	return humanize.Comma(int64(math.Round(n)))
}

// bytesOf formats a number of bytes.
func bytesOf(n float64) string { return humanize.IBytes(uint64(max(n, 0))) }

// short formats a short duration with two or three digits.
func short(d time.Duration) string {
	unit, v := "µs", float64(d)/float64(time.Microsecond)
	switch {
	case d >= time.Second:
		unit, v = "s", d.Seconds()
	case d >= time.Millisecond:
		unit, v = "ms", float64(d)/float64(time.Millisecond)
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
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
