package main

import (
	"context"
	"errors"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/socknotify/socknotify/internal/debugdata"
)

type topFlags struct {
	port     string
	interval time.Duration
	once     bool
	json     bool
}

func topCommand() *cobra.Command {
	f := &topFlags{}
	cmd := &cobra.Command{
		Use:   "top ADDRESS",
		Short: "Watch a running server or port in the terminal",
		Long: "Show a server's counts, its port's rates and registrations, and keep them current. ADDRESS is the\n" +
			"host:port or the URL of the program's debug page. Where the output is no terminal, or with --once,\n" +
			"it is printed once.\n\nKeys: " + topHelp(),
		Example: "  socknotify top 127.0.0.1:6060\n  socknotify top http://127.0.0.1:6060/debug/socknotify/ --port echo --once",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.port, "port", "", "name of the first port to show, if the page has several")
	flags.DurationVar(&f.interval, "interval", time.Second, "time between two updates")
	flags.BoolVar(&f.once, "once", false, "print once and exit")
	flags.BoolVar(&f.json, "json", false, "print one JSON object and exit")
	return cmd
}

// topHelp lists the keys.
func topHelp() string {
	var parts []string
	for _, b := range slices.Concat(topKeys.FullHelp()...) {
		parts = append(parts, b.Help().Key+" "+b.Help().Desc)
	}
	return strings.Join(parts, ", ")
}

const (
	minInterval, maxInterval = 100 * time.Millisecond, time.Hour
	// topTimeout is how long one update may take.
	topTimeout = 5 * time.Second
	// plainWidth and plainHeight are the size of the output if it is not a terminal.
	plainWidth, plainHeight = 132, 40
)

// A topReport is the JSON object.
type topReport struct {
	Server *debugdata.ServerView `json:"server,omitempty"`
	Port   debugdata.View        `json:"port"`
}

func (f *topFlags) run(cmd *cobra.Command, where string) error {
	if err := within("interval", f.interval, minInterval, maxInterval); err != nil {
		return err
	}
	c, err := newDebugClient(where)
	if err != nil {
		return err
	}
	defer c.close()
	ctx := cmd.Context()
	m := newTopModel(ctx, c, f.interval)
	m.port = f.port
	m.resize(plainWidth, plainHeight)
	first := c.fetch(ctx, m.query())
	if first.err != nil {
		return unlessDone(ctx.Err(), first.err)
	}
	m.show(first)
	out := cmd.OutOrStdout()
	file, ok := out.(*os.File)
	if f.json || f.once || !ok || !term.IsTerminal(int(file.Fd())) ||
		!term.IsTerminal(int(os.Stdin.Fd())) {
		report := topReport{first.server, first.View}
		return print(out, f.json, report, func() string { return m.plain() + "\n" })
	}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(file)).Run()
	return unlessDone(ctx.Err(), err)
}

// A query says what an update fetches.
type query struct {
	port, search, sort, order string
	offset, rows              int
	after                     string // the number of the latest known sample
	server                    string // the server that the previous update has shown
}

// An update is the answer to a query.
type update struct {
	query
	ports debugdata.Ports
	// server is the one that the port belongs to, or else the page's first; nil if it has none.
	server *debugdata.ServerView
	debugdata.View
	err error
}

// noSamples is asked for where the counts are enough.
var noSamples = strconv.FormatUint(math.MaxUint64, 10)

// fetch requests everything that a frame shows.
func (c *debugClient) fetch(ctx context.Context, w query) (s update) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	s.query = w
	var servers debugdata.Servers
	if s.err = c.get(ctx, "servers", nil, &servers); s.err != nil {
		return s
	}
	if s.err = c.get(ctx, "ports", nil, &s.ports); s.err != nil {
		return s
	}
	if len(s.ports.Ports)+len(servers.Servers) == 0 {
		s.err = errors.New("the page has no port")
		return s
	}
	if s.port == "" && len(s.ports.Ports) > 0 {
		s.port = s.ports.Ports[0].Name
	}
	for i := range servers.Servers {
		one := &servers.Servers[i]
		if owns := slices.Contains(one.Ports, s.port); i == 0 || owns {
			s.server = &debugdata.ServerView{Server: one.Name}
			if owns {
				break
			}
		}
	}
	if s.server != nil {
		name := s.server.Server
		parameters := url.Values{"server": {name}, "process": {noSamples}}
		if name == w.server {
			parameters.Set("after", noSamples)
		}
		if s.err = c.get(ctx, "server", parameters, s.server); s.err != nil {
			return s
		}
	}
	if s.port == "" {
		return s // the server has no port before it serves
	}
	s.err = c.get(ctx, "view", url.Values{
		"port": {s.port}, "after": {w.after}, "process": {noSamples}, "q": {w.search}, "sort": {w.sort}, "order": {w.order},
		"offset": {strconv.Itoa(w.offset)}, "limit": {strconv.Itoa(min(max(w.rows, 1), 1000))},
	}, &s.View)
	return s
}

// The keys.
type topKeyMap struct {
	quit, search, sort, reverse, next, previous, port, pause, help key.Binding
}

var topKeys = topKeyMap{
	quit:     key.NewBinding(key.WithKeys("q", "ctrl+c"), key.WithHelp("q", "quits")),
	search:   key.NewBinding(key.WithKeys("/"), key.WithHelp("/", "searches (Enter keeps the search, Esc drops it)")),
	sort:     key.NewBinding(key.WithKeys("s"), key.WithHelp("s", "sorts by the next column")),
	reverse:  key.NewBinding(key.WithKeys("r"), key.WithHelp("r", "reverses the order")),
	next:     key.NewBinding(key.WithKeys("n", "pgdown", "right"), key.WithHelp("n", "next page")),
	previous: key.NewBinding(key.WithKeys("p", "pgup", "left"), key.WithHelp("p", "previous page")),
	port:     key.NewBinding(key.WithKeys("tab"), key.WithHelp("Tab", "next port")),
	pause:    key.NewBinding(key.WithKeys("space"), key.WithHelp("space", "pauses")),
	help:     key.NewBinding(key.WithKeys("?"), key.WithHelp("?", "all keys")),
}

// ShortHelp and FullHelp implement help.KeyMap.
func (k topKeyMap) ShortHelp() []key.Binding {
	return []key.Binding{k.quit, k.sort, k.reverse, k.next, k.port, k.pause, k.help}
}

func (k topKeyMap) FullHelp() [][]key.Binding {
	return [][]key.Binding{{k.quit, k.search, k.sort}, {k.reverse, k.next, k.previous}, {k.port, k.pause, k.help}}
}

// plain returns a frame without colours and commands for a terminal.
func (m *topModel) plain() string {
	lines := strings.Split(ansi.Strip(m.frame()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
