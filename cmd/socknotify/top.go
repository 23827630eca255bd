package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/socknotify/socknotify/debug"
)

type topFlags struct {
	port     string
	interval time.Duration
	once     bool
}

func topCommand() *cobra.Command {
	f := &topFlags{}
	cmd := &cobra.Command{
		Use:   "top ADDRESS",
		Short: "Watch a running port in the terminal",
		Long: "Show a port's rates and its registrations, and keep them current. ADDRESS is the host:port or the\n" +
			"URL of the program's debug page. Where the output is no terminal, or with --once, it is printed once.\n\n" +
			topHelp,
		Example: "  socknotify top 127.0.0.1:6060\n  socknotify top http://127.0.0.1:6060/debug/socknotify/ --port echo --once",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.port, "port", "", "name of the first port to show, if the page has several")
	flags.DurationVar(&f.interval, "interval", time.Second, "time between two updates")
	flags.BoolVar(&f.once, "once", false, "print once and exit")
	return cmd
}

const (
	minInterval, maxInterval = 100 * time.Millisecond, time.Hour
	// topTimeout is how long one update may take.
	topTimeout = 5 * time.Second
	// plainWidth and plainHeight are the size of the output if it is not a terminal.
	plainWidth, plainHeight = 132, 40
)

func (f *topFlags) run(cmd *cobra.Command, where string) error {
	if f.interval < minInterval || f.interval > maxInterval {
		return fmt.Errorf("--interval %v: must be from %v to %v", f.interval, minInterval, maxInterval)
	}
	c, err := newDebugClient(where)
	if err != nil {
		return err
	}
	defer c.close()
	m := &topModel{where: c.base.Host, port: f.port, sort: "notifications", order: "desc"}
	m.rows = m.fit(plainWidth, plainHeight)
	ctx := cmd.Context()
	first := c.fetch(ctx, m.query())
	if first.err != nil {
		return unlessDone(ctx.Err(), first.err)
	}
	m.show(first)
	in, out := os.Stdin, cmd.OutOrStdout()
	file, ok := out.(*os.File)
	if f.once || !ok || !term.IsTerminal(int(file.Fd())) || !term.IsTerminal(int(in.Fd())) {
		if _, err := io.WriteString(out, strings.Join(m.frame(plainWidth, plainHeight), "\n")+"\n"); err != nil {
			return failure{err}
		}
		return nil
	}
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return failure{err}
	}
	defer term.Restore(int(in.Fd()), was)
	io.WriteString(file, "\x1b[?1049h\x1b[?25l") // the alternate screen, without a cursor
	defer io.WriteString(file, "\x1b[?25h\x1b[?1049l")
	s := &topScreen{
		client: c, model: m, interval: f.interval, out: file, in: in,
		size: func() (int, int) {
			w, h, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return plainWidth, plainHeight
			}
			return w, h
		},
	}
	if err := s.loop(ctx); err != nil {
		return failure{err}
	}
	return nil
}

// A query says what an update fetches.
type query struct {
	port, search, sort, order string
	offset, rows              int
	after                     string // the number of the latest known sample
}

// An update is the answer to a query.
type update struct {
	query
	ports   debug.Ports
	status  debug.Status
	list    debug.Registrations
	history debug.History
	err     error
}

// fetch requests everything that a frame shows.
func (c *debugClient) fetch(ctx context.Context, w query) (s update) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	s.query = w
	if s.err = c.get(ctx, "ports", nil, &s.ports); s.err != nil {
		return s
	}
	if len(s.ports.Ports) == 0 {
		s.err = errors.New("the page has no port")
		return s
	}
	if s.port == "" {
		s.port = s.ports.Ports[0].Name
	}
	var all debug.View
	s.err = c.get(ctx, "view", url.Values{
		"port": {s.port}, "after": {w.after}, "q": {w.search}, "sort": {w.sort}, "order": {w.order},
		"offset": {strconv.Itoa(w.offset)}, "limit": {strconv.Itoa(min(max(w.rows, 1), 1000))},
	}, &all)
	s.status, s.list, s.history = all.Status, all.Registrations, all.History
	return s
}

// A topScreen draws a model until the user quits.
type topScreen struct {
	client   *debugClient
	model    *topModel
	interval time.Duration
	out      io.Writer
	in       io.Reader // the user ends it
	size     func() (width, height int)
}

func (s *topScreen) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan []string)
	go s.readKeys(ctx, keys)
	updates := make(chan update, 1)
	fetching, again := false, false
	fetch := func() {
		if again = fetching; !fetching {
			fetching = true
			w := s.model.query()
			go func() { updates <- s.client.fetch(ctx, w) }()
		}
	}
	clock := time.NewTicker(s.interval)
	defer clock.Stop()
	defer func() {
		cancel()
		if fetching {
			<-updates
		}
	}()
	for {
		if err := s.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case pressed, ok := <-keys:
			if !ok {
				return nil
			}
			for _, k := range pressed {
				quit, changed := s.model.key(k)
				if quit {
					return nil
				}
				if changed {
					fetch()
				}
			}
		case got := <-updates:
			fetching = false
			s.model.show(got)
			if again {
				fetch()
			}
		case <-clock.C:
			if !s.model.paused {
				fetch()
			}
		}
	}
}

// draw writes a frame over the previous one.
func (s *topScreen) draw() error {
	width, height := s.size()
	s.model.rows = s.model.fit(width, height)
	lines := s.model.frame(width, height)
	_, err := io.WriteString(s.out, "\x1b[H\x1b[2K"+strings.Join(lines, "\r\n\x1b[2K")+"\x1b[J")
	return err
}

// readKeys sends the keys that are typed until the input or the screen ends.
func (s *topScreen) readKeys(ctx context.Context, keys chan<- []string) {
	defer close(keys)
	var buf [64]byte
	for {
		n, err := s.in.Read(buf[:])
		if n > 0 {
			select {
			case keys <- decodeKeys(buf[:n]):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
