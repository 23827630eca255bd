// Command test runs the tests of this module, and prints what it left out:
//
//	go run ./internal/test          what takes a minute or two and needs only Go; no examples
//	go run ./internal/test -long    every test, of every module of this repository
//
// Arguments after -- are passed to go test.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/socknotify/socknotify/internal/test/results"
)

// longest are the packages whose tests take longest, so that they begin first.
var longest = []string{"./internal/test/conformance", "./websocket", "./park", "./server"}

const module = "github.com/socknotify/socknotify"

func main() {
	all := flag.Bool("long", false, "run every test, of every module")
	flag.Parse()
	if err := run(*all, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(all bool, args []string) error {
	began := time.Now()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	modules := strings.Split(strings.TrimSpace(string(out)), "\n") // of go.work, the root first
	root := modules[0]
	r := report{left: map[string][]string{}}
	// Most tests wait for a peer or a kernel, and use little of a processor. Linking takes a good part
	// of the rest, and less of it without DWARF.
	together := []string{
		fmt.Sprintf("-p=%d", 4*runtime.NumCPU()), fmt.Sprintf("-parallel=%d", 8*runtime.NumCPU()),
		"-ldflags=-w",
		"-timeout=20m", // for a package, beside others on a busy machine
	}
	args = append(together, args...)
	packages := longest // go test names a package once, also if it is listed again
	if all {
		packages = append(packages, "./...")
	} else {
		args = append([]string{"-short"}, args...)
		out, err := exec.Command("go", "list", "-C", root, "./...").Output()
		if err != nil {
			return fmt.Errorf("go list ./...: %w", err)
		}
		for _, name := range strings.Fields(string(out)) {
			if rest, example := strings.CutPrefix(name, module+"/examples/"); example {
				r.leave("long: each example is a program to link", "examples/"+rest)
			} else {
				packages = append(packages, name)
			}
		}
	}
	if err := r.test(root, args, packages...); err != nil {
		return err
	}
	for _, dir := range modules[1:] {
		if !all {
			r.leave("a module of its own", strings.TrimPrefix(dir, root+"/"))
		} else if err := r.test(dir, args, "./..."); err != nil {
			return err
		}
	}
	r.print(time.Since(began))
	if r.failed > 0 {
		return fmt.Errorf("%d packages failed", r.failed)
	}
	return nil
}

// A report is what the tests have said.
type report struct {
	passed, failed, tests int
	left                  map[string][]string // tests that were skipped, by their reason
}

// test runs the tests of packages of the module in a folder. Failures are printed when their
// package ends.
func (r *report) test(dir string, args []string, packages ...string) error {
	args = slices.Concat([]string{"test", "-json"}, args, packages)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	before := r.failed
	if err := results.Run(cmd, r.add); err != nil && r.failed == before {
		return fmt.Errorf("go test in %s: %w", dir, err)
	}
	return nil
}

// add adds a result, and prints what failed.
func (r *report) add(t results.Result) {
	switch {
	case t.Test == "" && t.Action == "skip": // no test files
	case t.Test == "" && t.Action == "fail":
		r.failed++
		fmt.Printf("%sFAIL %s (%.1f s)\n", t.Output, t.Package, t.Elapsed)
	case t.Test == "":
		r.passed++
		fmt.Printf("ok   %s (%.1f s)\n", t.Package, t.Elapsed)
	case t.Action == "fail":
		fmt.Print(t.Output)
	case t.Action == "skip":
		r.leave(reason(t.Output), strings.TrimPrefix(t.Package, module)+" "+t.Test)
	default:
		r.tests++
	}
}

// reason returns what a test gave to Skip: the text behind the place in its output.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		place, why, ok := strings.Cut(line, ": ")
		if file, _, _ := strings.Cut(place, ":"); ok && strings.HasSuffix(file, ".go") {
			return why
		}
	}
	return "no reason given"
}

func (r *report) leave(why, what string) { r.left[why] = append(r.left[why], what) }

func (r *report) print(took time.Duration) {
	if len(r.left) > 0 {
		fmt.Println("\nleft out:")
		most := func(a, b string) int {
			return cmp.Or(len(r.left[b])-len(r.left[a]), strings.Compare(a, b))
		}
		for _, why := range slices.SortedFunc(maps.Keys(r.left), most) {
			fmt.Printf("%6d  %s (%s)\n", len(r.left[why]), why, r.left[why][0])
		}
		fmt.Println("go run ./internal/test -long runs what was left out for its length.")
	}
	fmt.Printf("\n%d tests in %.0f s\npackages: %d passed, %d failed\n",
		r.tests, took.Seconds(), r.passed, r.failed)
}
