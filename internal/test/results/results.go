// Package results runs go test and reads its results, for the commands below internal/test.
package results

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Result says how a test, or all tests of a package, ended.
type Result struct {
	Package, Test string // Test is empty for the whole package
	Action        string // "pass", "fail" or "skip"
	Elapsed       float64
	Output        string
}

// Run runs go test -json, and calls each with every result. A test without a result, because its
// program has ended before, has failed if it has printed something, such as a panic. Lines that are
// not of that format, and what the compiler said, are printed.
func Run(cmd *exec.Cmd, each func(Result)) error {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	read(out, each)
	return cmd.Wait()
}

func read(in io.Reader, each func(Result)) {
	type test struct{ pkg, name string }
	output := map[test][]byte{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r Result
		if json.Unmarshal(line, &r) != nil {
			fmt.Printf("%s", line)
			continue
		}
		key := test{r.Package, r.Test}
		switch r.Action {
		case "build-output":
			fmt.Print(r.Output)
		case "output":
			output[key] = append(output[key], r.Output...)
		case "pass", "fail", "skip":
			if r.Test == "" && r.Action == "fail" {
				for k, text := range output {
					if k.pkg == r.Package && k.name != "" && said(string(text)) {
						each(Result{Package: k.pkg, Test: k.name, Action: "fail", Output: string(text)})
					}
				}
			}
			r.Output = string(output[key])
			delete(output, key)
			each(r)
		}
	}
}

// said reports whether there is more in the output of a test than that it has begun or was paused.
func said(output string) bool {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "=== ") {
			return true
		}
	}
	return false
}

// Overlay returns a file for go build -overlay, which gives Go files other texts. It writes the
// texts into dir, too.
func Overlay(dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(to, []byte(text), 0o666); err != nil {
			return "", err
		}
		replace[file] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o666)
}
