//go:build linux

// Command million opens connections to a server until there are as many as it is told, lets them wait, and prints a
// line with what they cost:
//
//	go run ./million                        a million of each kind
//	go run ./million -conns 20000 park      one kind
//
// The server is another process. The kernel's memory is that of both ends, and of whatever else the machine does. A
// process needs a descriptor for each connection, so .ci/million runs this in a kernel of its own.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(kinds[os.Args[2]], os.Args[3] == "true")
		return
	}
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "million:", err)
		os.Exit(1)
	}
}

// run measures the kinds that args name.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("million", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "million [flags] [KIND...], of %s\n", strings.Join(names, ", "))
		flags.PrintDefaults()
	}
	conns := flags.Int("conns", 1_000_000, "connections of each kind")
	probes := flags.Bool("probes", true, "the server's connections have the keep-alive probes of package net")
	wait := flags.Duration("wait", time.Minute, "time for which the connections wait before they are measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := flags.Args()
	if len(chosen) == 0 {
		chosen = names
	}
	for _, name := range chosen {
		if kinds[name] == nil {
			return fmt.Errorf("there is no kind %q, but %s", name, strings.Join(names, ", "))
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if limit.Cur < uint64(*conns)+100 {
		return fmt.Errorf("%d connections need %d descriptors, and %d are allowed (ulimit -n)", *conns, *conns+100, limit.Cur)
	}
	fmt.Fprintln(out, header)
	for _, name := range chosen {
		r, err := measure(name, *conns, *probes, *wait)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintln(out, r)
	}
	return nil
}

const header = "kind                   conns  open s   live resident kernel  collection s   1 % ask: s, CPU µs each  " +
	"to all: s, CPU µs each     gone"

// A result is what connections have cost.
type result struct {
	kind       string
	conns      int
	open       time.Duration // until the last one had its answer
	live       float64       // bytes of the server for each, after a collection
	resident   float64       // before that
	kernel     float64       // slabs of both ends, for each
	collection time.Duration
	ask, all   cost
	gone       int // ended without anyone having closed them
}

// A cost is that of requests or messages: the time until the last one was there, and the server's CPU time for each.
type cost struct{ time, cpu time.Duration }

func (c cost) String() string {
	if c == (cost{}) {
		return fmt.Sprintf("%24s", "-")
	}
	return fmt.Sprintf("%12.2f %11.1f", c.time.Seconds(), float64(c.cpu.Nanoseconds())/1000)
}

func (r result) String() string {
	return fmt.Sprintf("%-18s %9d %7.0f %6.0f %8.0f %6.0f %13.2f %s %s %8d", r.kind, r.conns, r.open.Seconds(), r.live, r.resident,
		r.kernel, r.collection.Seconds(), r.ask, r.all, r.gone)
}

// measure starts a server of a kind, and measures it with clients of this process.
func measure(kind string, conns int, probes bool, wait time.Duration) (r result, err error) {
	k := kinds[kind]
	s, err := start(kind, probes)
	if err != nil {
		return r, err
	}
	defer s.end()
	var before, after usage
	if before, err = s.usage(); err != nil {
		return r, err
	}
	slabs := slabBytes()
	began := time.Now()
	clients, err := connect(k, s.port, conns)
	defer clients.close()
	if err != nil {
		return r, err
	}
	r.kind, r.conns, r.open = kind, conns, time.Since(began)
	if err := s.settle(conns); err != nil {
		return r, err
	}
	time.Sleep(wait)
	each := func(n int64) float64 { return float64(n) / float64(conns) }
	var resident int64
	if err := s.ask("resident", &resident); err != nil {
		return r, err
	}
	if after, err = s.usage(); err != nil {
		return r, err
	}
	r.live, r.resident = each(after.live-before.live), each(resident-before.resident)
	r.kernel, r.collection = each(slabBytes()-slabs), after.collection
	if k.ask != nil {
		if r.ask, err = s.timed(clients.ask, (conns+99)/100); err != nil {
			return r, err
		}
	}
	if k.all != "" {
		if r.all, err = s.timed(func() error {
			var sent int
			if err := s.ask("all", &sent); err != nil {
				return err
			}
			if sent != conns {
				return fmt.Errorf("%d of %d were sent the message", sent, conns)
			}
			return clients.hear()
		}, conns); err != nil {
			return r, err
		}
	}
	r.gone = clients.gone()
	return r, nil
}

// A usage is the memory of a server, in bytes, and the time of a collection.
type usage struct {
	live, resident int64
	collection     time.Duration
}

// A server is a child process that serves.
type server struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	port int
}

func start(kind string, probes bool) (*server, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{cmd: exec.Command(path, "serve", kind, fmt.Sprint(probes))}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if err := s.ask("port", &s.port); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// end ends the process.
func (s *server) end() {
	s.in.Close()
	s.cmd.Wait()
}

// ask sends a question, and reads the values of the answer.
func (s *server) ask(question string, values ...any) error {
	if _, err := fmt.Fprintln(s.in, question); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	line, err := s.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, values...)
	}
	if err != nil {
		return fmt.Errorf("server: %s: %w", question, err)
	}
	return nil
}

func (s *server) usage() (u usage, err error) {
	err = s.ask("usage", &u.live, &u.resident, &u.collection)
	return u, err
}

// settle waits until all connections wait.
func (s *server) settle(conns int) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var n int
		if err := s.ask("idle", &n); err != nil || n >= conns {
			return err
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("%d of %d connections wait", n, conns)
		}
	}
}

// timed measures what f costs for each of n.
func (s *server) timed(f func() error, n int) (c cost, err error) {
	var before, after time.Duration
	if err := s.ask("cpu", &before); err != nil {
		return c, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return c, err
	}
	c.time = time.Since(began)
	err = s.ask("cpu", &after)
	c.cpu = (after - before) / time.Duration(n)
	return c, err
}

// slabBytes returns the memory that the kernel has for its objects, or 0 where it does not say.
func slabBytes() (n int64) {
	b, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(b), "Slab:")
	fmt.Sscan(after, &n) // in KiB
	return n << 10
}
