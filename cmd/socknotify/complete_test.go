package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// offered returns the completions of a command line, and reports whether files are offered too.
func offered(t *testing.T, line string) (words []string, files bool) {
	t.Helper()
	status, out, _ := sh(t, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	directive := lines[len(lines)-1]
	if status != 0 || directive != ":0" && directive != ":4" {
		t.Fatalf("%s: status %d: %s", line, status, out)
	}
	return lines[:len(lines)-1], directive == ":0"
}

func TestCompletion(t *testing.T) {
	kinds := strings.Fields("notified accepted registered removed lost posted completed")
	for _, c := range []struct {
		line  string
		want  []string
		files bool
	}{
		{"", strings.Fields("completion help info load proxy serve top trace"), false},
		{"serve ", strings.Fields("chargen discard echo http"), false},
		{"completion ", strings.Fields("bash fish powershell zsh"), false},
		{"load --bac", []string{"--backend"}, false},
		{"load --backend ", socknotify.Backends(), false},
		{"serve echo --backend ", socknotify.Backends(), false},
		{"serve http --backend ", socknotify.Backends(), false},
		{"trace 127.0.0.1:1 --kind ", kinds, false},
		{"serve echo --cert ", nil, true},
		{"serve http --key ", nil, true},
		{"load --addr ", nil, false},
		{"serve echo --workers ", nil, false},
		{"top ", nil, false},
		{"top --port ", nil, false},             // no page is named
		{"top 127.0.0.1:1 --port ", nil, false}, // no page is there
		{"info ", nil, false},
	} {
		got, files := offered(t, c.line)
		if !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 || files != c.files {
			t.Errorf("%q: %q, files %t; want %q, files %t", c.line, got, files, c.want, c.files)
		}
	}
}

// Ports are completed from the running page.
func TestCompletionAsksThePage(t *testing.T) {
	backendtest.Need(t)
	w := watch(t, 3)
	for _, command := range []string{"top", "trace"} {
		if got, _ := offered(t, command+" "+w.url+" --port "); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("%s: %q", command, got)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range strings.Fields("bash zsh fish powershell") {
		status, out, errs := sh(t, "completion", shell)
		if status != 0 || errs != "" || !strings.Contains(out, "socknotify") {
			t.Errorf("%s: status %d: %s", shell, status, errs)
		}
	}
	if status, _, errs := sh(t, "completion", "abacus"); status != 2 || !strings.Contains(errs, "abacus") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// Every command's help has examples, and each is a valid command line.
func TestExamples(t *testing.T) {
	var help bytes.Buffer
	if status := run(t.Context(), []string{"--help"}, &help, &help); status != 0 {
		t.Fatal(help.String())
	}
	for _, said := range []string{"exit status is 0", "1 after a failure", "2 for wrong usage"} {
		if !strings.Contains(help.String(), said) {
			t.Errorf("the help does not mention %q", said)
		}
	}
	for _, name := range commands(t, "") {
		_, out, _ := sh(t, append(strings.Fields(name), "--help")...)
		_, rest, found := strings.Cut(out, "\nExamples:\n")
		if !found {
			t.Errorf("%q has no examples", name)
			continue
		}
		text, _, _ := strings.Cut(rest, "\n\n")
		for line := range strings.Lines(text) {
			words, ok := strings.CutPrefix(strings.TrimSpace(line), "socknotify ")
			if !ok {
				t.Errorf("%q: the example %q is not of this command", name, line)
				continue
			}
			// With --help all flags are parsed, and the command does not run.
			if status, _, errs := sh(t, append(strings.Fields(words), "--help")...); status != 0 || !strings.HasPrefix(words, strings.TrimSpace(name)) {
				t.Errorf("%q: the example %q: status %d: %s", name, line, status, errs)
			}
		}
	}
}

// commands returns a command and all commands that its help names.
func commands(t *testing.T, name string) []string {
	t.Helper()
	all := []string{name}
	below, _ := offered(t, strings.TrimLeft(name+" ", " "))
	for _, c := range below {
		if c != "help" && c != "completion" { // added by cobra
			all = append(all, commands(t, strings.TrimSpace(name+" "+c))...)
		}
	}
	return all
}
