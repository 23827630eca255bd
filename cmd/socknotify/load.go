package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"charm.land/bubbles/v2/progress"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/load"
)

type loadFlags struct {
	load.Config
	json     bool
	tls      bool
	ca       string
	insecure bool
}

func loadCommand() *cobra.Command {
	f := &loadFlags{}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Put load on a TCP echo server and measure its answers, with or without TLS",
		Long: "Send requests to a TCP echo server over many connections, check that every answer is the\n" +
			"request, and measure how long it took. With --rate the time starts when the request was due,\n" +
			"and includes up to a millisecond by which the timer may be late; otherwise it starts when the\n" +
			"first byte was sent. An interrupt ends the sending early.\n\n" +
			"Progress is shown once a second on standard error. A connection that fails is an error, and is not\n" +
			"made again.",
		Example: "  socknotify load --addr 127.0.0.1:9000 --connections 1000 --rate 20000\n" +
			"  socknotify load --addr 127.0.0.1:9000 --size 1024 --depth 16 --duration 1m --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Addr, "addr", "", "host:port of the server")
	flags.IntVar(&f.Connections, "connections", 100, "connections in all")
	flags.Float64Var(&f.Rate, "rate", 0, "requests per second in all; 0 is as fast as answers come")
	flags.IntVar(&f.Size, "size", 64, "bytes of a request")
	flags.IntVar(&f.Depth, "depth", 1, "requests in flight per connection")
	flags.DurationVar(&f.Think, "think", 0, "wait between an answer and the next request on a connection")
	flags.DurationVar(&f.Duration, "duration", 10*time.Second, "send requests for this time")
	flags.DurationVar(&f.Timeout, "timeout", 10*time.Second, "give up connecting and handshakes after this time")
	flags.IntVar(&f.Workers, "workers", runtime.GOMAXPROCS(0), "goroutines that share the connections")
	flags.StringVar(&f.Backend, "backend", "", "backend to run on (default $"+socknotify.BackendEnv+", or the system's first)")
	flags.BoolVar(&f.tls, "tls", false, "with TLS; the certificate must be for the host of --addr")
	flags.StringVar(&f.ca, "ca", "", "file of the certificates to trust (PEM), instead of the system's")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate, such as one that serve generated")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

// check returns an error for the first invalid flag.
func (f *loadFlags) check() error {
	if f.Addr == "" {
		return errors.New("--addr is missing: host:port of the server")
	}
	if _, port, err := net.SplitHostPort(f.Addr); err != nil || port == "" || port == "0" {
		return fmt.Errorf("--addr %q: must be host:port", f.Addr)
	}
	if err := cmp.Or(
		within("connections", f.Connections, 1, load.MaxConnections),
		within("size", f.Size, 1, load.MaxSize),
		within("depth", f.Depth, 1, load.MaxDepth),
		within("workers", f.Workers, 1, load.MaxWorkers),
	); err != nil {
		return err
	}
	if !(f.Rate >= 0 && f.Rate <= load.MaxRate) { // so not NaN
		return fmt.Errorf("--rate %v: must be from 0 to %.0f", f.Rate, load.MaxRate)
	}
	if err := within("think", f.Think, 0, load.MaxTime); err != nil {
		return err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"duration", f.Duration}, {"timeout", f.Timeout}} {
		if d.value <= 0 || d.value > load.MaxTime {
			return fmt.Errorf("--%s %v: must be positive and at most %v", d.flag, d.value, load.MaxTime)
		}
	}
	if (f.ca != "" || f.insecure) && !f.tls {
		return errors.New("--ca and --insecure need --tls")
	}
	if f.ca != "" && f.insecure {
		return errors.New("--ca and --insecure exclude each other")
	}
	return nil
}

// trust returns the configuration of TLS, or nil without --tls.
func (f *loadFlags) trust() (*tls.Config, error) {
	if !f.tls {
		return nil, nil
	}
	config := &tls.Config{InsecureSkipVerify: f.insecure}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no PEM certificate found", f.ca)
		}
	}
	return config, nil
}

func (f *loadFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	backend, err := resolve(f.Backend)
	if err != nil {
		return err
	}
	f.Backend = backend
	if f.TLS, err = f.trust(); err != nil {
		return failure{err}
	}
	show, clear := f.progress(cmd.ErrOrStderr())
	res, err := load.Run(cmd.Context(), f.Config, show)
	clear()
	if err != nil && res.Errors == 0 {
		return failure{err} // before any connection
	}
	text := func() string { return loadTable(&res) }
	if err := print(cmd.OutOrStdout(), f.json, newLoadReport(&res), text); err != nil {
		return err
	}
	if err == nil && res.Errors > 0 {
		err = fmt.Errorf("%d of %d connections failed, one of them: %w",
			res.Errors, f.Connections, res.First)
	}
	return failed(err)
}

// progress returns functions that show a second's work: on a terminal in one line with a bar, which
// is cleared at the end, and elsewhere in a line of its own. They do nothing with --json.
func (f *loadFlags) progress(stderr io.Writer) (show func(load.Totals), clear func()) {
	if f.json {
		return nil, func() {}
	}
	file, ok := stderr.(*os.File)
	isTerminal := ok && term.IsTerminal(int(file.Fd()))
	var last load.Totals
	bar := progress.New(progress.WithWidth(24))
	show = func(t load.Totals) {
		line := loadLine(&t, &last)
		last = t
		if !isTerminal {
			fmt.Fprintln(stderr, line)
			return
		}
		done := min(t.Elapsed.Seconds()/f.Duration.Seconds(), 1)
		lipgloss.Fprint(file, "\r\x1b[K"+bar.ViewAs(max(done, 0))+"  "+line)
	}
	return show, func() {
		if isTerminal {
			fmt.Fprint(file, "\r\x1b[K")
		}
	}
}

// loadLine describes what was done so far, and in the time since the last line.
func loadLine(t, last *load.Totals) string {
	span := t.Elapsed - last.Elapsed
	return fmt.Sprintf("%3.0f s  %s requests, %s/s, %s/s, %s errors", max(t.Elapsed, 0).Seconds(), humanize.Comma(t.Requests),
		rate(perSecond(t.Requests-last.Requests, span)), bytesOf(perSecond(t.Bytes-last.Bytes, span)), humanize.Comma(t.Errors))
}

// A loadReport is the JSON object.
type loadReport struct {
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Max      float64 `json:"max_us"`
}

func newLoadReport(r *load.Result) loadReport {
	return loadReport{
		Requests: r.Requests, Errors: r.Errors, Bytes: r.Bytes, Seconds: r.Elapsed.Seconds(),
		P50: micros(r.P50), P99: micros(r.P99), Max: micros(r.Max),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// loadTable returns the result as a table.
func loadTable(r *load.Result) string {
	rows := [][]string{
		{"connections", humanize.Comma(int64(r.Connections))},
		{"requests", humanize.Comma(r.Requests)},
		{"requests/s", rate(perSecond(r.Requests, r.Elapsed))},
		{"errors", humanize.Comma(r.Errors)},
		{"bytes", bytesOf(float64(r.Bytes))},
		{"bytes/s", bytesOf(perSecond(r.Bytes, r.Elapsed))},
		{"time", fmt.Sprintf("%.3f s", r.Elapsed.Seconds())},
	}
	for _, q := range []struct {
		name string
		d    time.Duration
	}{{"p50", r.P50}, {"p90", r.P90}, {"p99", r.P99}, {"p99.9", r.P999}, {"max", r.Max}} {
		rows = append(rows, []string{q.name, short(q.d)})
	}
	return align(rows)
}
