// Command flaky looks for tests that fail now and then:
//
//	go run ./internal/test/flaky [-rounds 3] [-short] [package ...]
//
// It runs every test package in random order, with GOMAXPROCS 1, 2 and 16, alone and beside
// processes that use every processor, with random delays before statements that synchronise and
// without. It prints each failure, and at the end how often each test that failed did so.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/socknotify/socknotify/internal/test/delay"
)

func main() {
	rounds := flag.Int("rounds", 1, "how often each package is run in each way")
	short := flag.Bool("short", true, "run the tests with -short")
	filter := flag.String("run", "", "run only the tests that match, as go test -run")
	load := flag.Int("load", 8, "loops that use a processor each beside the tests, in the runs beside load")
	burn := flag.Bool("burn", false, "use a processor until standard input ends")
	flag.Parse()
	if *burn {
		useProcessor()
	}
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	if err := run(*rounds, *load, *short, *filter, patterns); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A way is how the tests of a package are run.
type way struct {
	procs          int
	loaded, delays bool
}

func (w way) String() string {
	s := fmt.Sprintf("GOMAXPROCS=%d", w.procs)
	if w.loaded {
		s += ", beside load"
	}
	if w.delays {
		s += ", with delays"
	}
	return s
}

var ways = []way{
	{2, false, false}, {1, true, false}, {16, true, false}, {2, true, true}, {1, false, true}, {16, false, true},
}

// delayOneOf is the share of the inserted points that wait.
const delayOneOf = "200"

// A testPackage is a package with tests, and its two programs.
type testPackage struct {
	path, dir, plain, delayed string
}

func run(rounds, load int, short bool, filter string, patterns []string) error {
	work, err := os.MkdirTemp("", "flaky")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	packages, err := build(work, patterns)
	if err != nil {
		return err
	}
	runs, failures := 0, map[string]int{}
	for round := range rounds {
		for _, w := range ways {
			stop, err := burners(w.loaded, load)
			if err != nil {
				return err
			}
			for _, p := range packages {
				runs++
				for _, name := range p.run(w, short, filter) {
					failures[name]++
				}
			}
			stop()
			fmt.Printf("round %d, %v: done\n", round+1, w)
		}
	}
	each := rounds * len(ways)
	fmt.Printf("\n%d runs of %d packages, %d each\n", runs, len(packages), each)
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Printf("%5.1f %%  %s\n", 100*float64(failures[name])/float64(each), name)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d tests failed", len(failures))
	}
	return nil
}

// build compiles the tests of packages, with delays and without.
func build(work string, patterns []string) ([]testPackage, error) {
	list := func(format string, patterns ...string) ([]string, error) {
		cmd := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		return strings.Split(strings.TrimSpace(string(out)), "\n"), err
	}
	lines, err := list(`{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`, patterns...)
	if err != nil {
		return nil, err
	}
	all, err := list(`{{.Dir}}`, "./...", "./gateway", "./park/http2")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(dir string) bool { return filepath.Base(dir) == "delay" })
	file, err := overlay(work, all)
	if err != nil {
		return nil, err
	}
	var packages []testPackage
	for _, line := range lines {
		path, dir, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		p := testPackage{path: path, dir: dir}
		base := filepath.Join(work, strings.ReplaceAll(path, "/", "_"))
		p.plain, p.delayed = base+".test", base+".delayed.test"
		for _, args := range [][]string{{"-o", p.plain}, {"-overlay", file, "-o", p.delayed}} {
			cmd := exec.Command("go", append(append([]string{"test", "-c"}, args...), path)...)
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				return nil, fmt.Errorf("building the tests of %s: %w", path, err)
			}
		}
		packages = append(packages, p)
	}
	return packages, nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs the tests once, prints what a failure printed, and returns the tests that failed.
func (p testPackage) run(w way, short bool, filter string) []string {
	args := []string{
		"-test.shuffle=on", "-test.parallel=16", "-test.timeout=20m", "-test.paniconexit0",
		"-test.run=" + filter,
	}
	if short {
		args = append(args, "-test.short")
	}
	program := p.plain
	if w.delays {
		program = p.delayed
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", w.procs))
	if w.delays {
		cmd.Env = append(cmd.Env, delay.Env+"="+delayOneOf)
	}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	fmt.Printf("=== FAILED: %s, %v, after %.0f s: %v\n%s\n", p.path, w, time.Since(began).Seconds(), err, out)
	var names []string
	for _, match := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(match[1]); !bytes.Contains(match[1], []byte("/")) {
			names = append(names, p.path+" "+name)
		}
	}
	if len(names) == 0 {
		names = []string{p.path + " (the whole program)"}
	}
	return names
}

// useProcessor uses a processor until standard input ends, which it does with the process that
// started this one.
func useProcessor() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for i := uint64(0); ; i++ {
		runtime.KeepAlive(i)
	}
}

// burners starts processes that use the processors, and returns a function that ends them.
func burners(on bool, n int) (stop func(), err error) {
	var all []*exec.Cmd
	stop = func() {
		for _, cmd := range all {
			cmd.Process.Kill() // Wait reports that
			cmd.Wait()
		}
	}
	if !on {
		return stop, nil
	}
	self, err := os.Executable()
	if err != nil {
		return stop, err
	}
	for range n {
		cmd := exec.Command(self, "-burn")
		_, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return stop, err
		}
		all = append(all, cmd)
	}
	return stop, nil
}
