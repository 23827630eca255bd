// Command flaky looks for tests that fail now and then:
//
//	go run ./internal/test/flaky [-rounds 3] [-short] [package ...]
//
// It runs the tests in random order, those of a few packages beside each other, with GOMAXPROCS 1, 2
// and 16, alone and beside goroutines that use every processor, with random delays before statements
// that synchronise and without. It prints each failure, and at the end how often each test that failed did so.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/test/results"
)

func main() {
	rounds := flag.Int("rounds", 1, "how often each package is run in each way")
	short := flag.Bool("short", true, "run the tests with -short")
	filter := flag.String("run", "", "run only the tests that match, as go test -run")
	flag.Parse()
	runtime.GOMAXPROCS(loops + 1)
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	args := []string{
		"test", "-json", "-p=4", "-shuffle=on", "-parallel=16",
		fmt.Sprintf("-timeout=%dm", 20**rounds), fmt.Sprintf("-count=%d", *rounds),
		fmt.Sprintf("-short=%t", *short), "-run=" + *filter,
	}
	if err := run(*rounds, args, patterns); err != nil {
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

// The first way without delays and the first with them are not beside load, because go test compiles in them.
var ways = []way{
	{2, false, false}, {1, true, false}, {16, true, false}, {1, false, true}, {16, false, true}, {2, true, true},
}

func run(rounds int, args, patterns []string) error {
	work, err := os.MkdirTemp("", "flaky")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	overlay, err := delays(work)
	if err != nil {
		return err
	}
	failures := map[string]int{}
	for _, w := range ways {
		args := slices.Clone(args)
		if w.delays {
			args = append(args, "-overlay="+overlay)
		}
		cmd := exec.Command("go", append(args, patterns...)...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", w.procs))
		stop := func() {}
		if w.loaded {
			stop = useProcessors()
		}
		err := w.run(cmd, failures)
		stop()
		if err != nil {
			return err
		}
		fmt.Printf("%v: done\n", w)
	}
	each := rounds * len(ways)
	fmt.Printf("\n%d runs of each package\n", each)
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Printf("%5.1f %%  %s\n", 100*float64(failures[name])/float64(each), name)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d tests failed", len(failures))
	}
	return nil
}

// run runs go test, prints what failed and counts it.
func (w way) run(cmd *exec.Cmd, failures map[string]int) error {
	failed := map[string]bool{} // packages
	err := results.Run(cmd, func(r results.Result) {
		name := r.Package + " " + r.Test
		switch {
		case r.Action != "fail":
			return
		case r.Test == "" && failed[r.Package]:
			return // a test says it
		case r.Test == "":
			name = r.Package + " (the whole program)"
		}
		failed[r.Package] = true
		fmt.Printf("=== FAILED: %s, %v\n%s\n", name, w, r.Output)
		if !strings.Contains(r.Test, "/") {
			failures[name]++
		}
	})
	if err != nil && len(failed) == 0 {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// loops is how many of them use a processor each beside the tests, in the runs beside load.
var loops = 2 * runtime.NumCPU()

// useProcessors runs the loops beside the tests until stop is called.
func useProcessors() (stop func()) {
	var over atomic.Bool
	var running sync.WaitGroup
	for range loops {
		running.Go(func() {
			for !over.Load() {
				continue
			}
		})
	}
	return func() {
		over.Store(true)
		running.Wait()
	}
}
