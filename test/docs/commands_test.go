package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A usage is the help of a command.
type usage struct {
	args   int               // the number of arguments
	flags  map[string]string // types by name; "" for a flag without a value
	nested map[string]bool
}

var (
	ours      = regexp.MustCompile(`^(?:go run \./cmd/socknotify|socknotify) [a-z-]`)
	goCommand = regexp.MustCompile(`^go (?:run|test|vet|build) `)
	flagLine  = regexp.MustCompile(`(?m)^ +(?:-\w, |    )--([\w-]+)(?: ([a-z]+))?  `)
	nestLine  = regexp.MustCompile(`(?m)^  ([a-z]+)  `)
	argument  = regexp.MustCompile(`\b[A-Z]{2,}\b`)
	cut       = regexp.MustCompile(`   ?|\t| [|&>#]|$`) // the end of a command in a line
	variables = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )+`)
)

// commandChecker checks commands: those of socknotify against its --help, and those of the go command for packages that
// do not exist. In running text a command may be incomplete.
func commandChecker(t *testing.T) checker {
	program := filepath.Join(t.TempDir(), "socknotify")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build(t, program)
	known := map[string]*usage{}
	help := func(command string) *usage {
		if known[command] == nil {
			known[command] = askUsage(t, program, command)
		}
		return known[command]
	}
	return func(t *testing.T, p *page) {
		for _, b := range p.blocks {
			if b.lang != "" {
				continue
			}
			dir := ".."
			for i, line := range strings.Split(b.text, "\n") {
				if to, rest, ok := strings.Cut(strings.TrimPrefix(line, "cd "), " && "); ok && strings.HasPrefix(line, "cd ") {
					dir, line = filepath.Join("..", to), rest // for this line
				} else if to, ok := strings.CutPrefix(line, "cd "); ok {
					dir = filepath.Join("..", to)
					continue
				}
				if err := checkCommand(line, dir, help, true); err != nil {
					p.fault(b.line+1+i, "%v", err)
				}
			}
		}
		for _, code := range p.code {
			if err := checkCommand(strings.Join(strings.Fields(code.text), " "), "..", help, false); err != nil {
				p.faultAt(code.at, "%v", err)
			}
		}
	}
}

// build builds the command, which is a module of its own and therefore needs go.work.
func build(t *testing.T, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/socknotify")
	cmd.Env = append(os.Environ(), "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// checkCommand checks a line that may be a command, in a directory.
func checkCommand(line, dir string, help func(string) *usage, whole bool) error {
	line = line[:cut.FindStringIndex(line)[0]]
	line = variables.ReplaceAllString(strings.TrimPrefix(line, "$ "), "")
	switch {
	case ours.MatchString(line):
		return checkOurs(line, help, whole)
	case goCommand.MatchString(line):
		for _, word := range strings.Fields(line)[2:] {
			if strings.HasPrefix(word, "./") {
				if _, err := os.Stat(filepath.Join(dir, strings.TrimSuffix(word, "..."))); err != nil {
					return fmt.Errorf("%s: no such package: %s", line, word)
				}
			}
		}
	}
	return nil
}

func checkOurs(line string, help func(string) *usage, whole bool) error {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "go run ./cmd/"), "socknotify ")
	words, command := strings.Fields(line), ""
	u := help("")
	for len(words) > 0 && u.nested[words[0]] {
		command, words = strings.TrimSpace(command+" "+words[0]), words[1:]
		u = help(command)
	}
	if command == "" {
		return fmt.Errorf("socknotify %s: no such command", line)
	}
	args := 0
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if !strings.HasPrefix(word, "-") {
			args++
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		kind, ok := u.flags[name]
		switch {
		case !ok:
			return fmt.Errorf("socknotify %s: %s has no flag %s", line, command, word)
		case kind != "" && !given && len(words) > 0:
			value, words = words[0], words[1:]
		case kind != "" && !given && whole:
			return fmt.Errorf("socknotify %s: %s needs a value", line, word)
		case kind != "" && !given:
			continue
		}
		if err := checkValue(kind, value); err != nil {
			return fmt.Errorf("socknotify %s: %s: %w", line, word, err)
		}
	}
	switch {
	case args > u.args && len(u.nested) > 0:
		return fmt.Errorf("socknotify %s: no such command", line)
	case args > u.args || whole && args < u.args:
		return fmt.Errorf("socknotify %s: %s takes %d arguments", line, command, u.args)
	}
	return nil
}

// checkValue checks the value of a flag of a type.
func checkValue(kind, value string) (err error) {
	switch kind {
	case "":
		if value != "" {
			return errors.New("takes no value")
		}
	case "int":
		_, err = strconv.Atoi(value)
	case "uint":
		_, err = strconv.ParseUint(value, 10, 64)
	case "float":
		_, err = strconv.ParseFloat(value, 64)
	case "duration":
		_, err = time.ParseDuration(value)
	case "string", "strings":
	default:
		return fmt.Errorf("unknown type %s", kind)
	}
	return err
}

// askUsage runs a command with --help and parses its usage.
func askUsage(t *testing.T, program, command string) *usage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, append(strings.Fields(command), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	_, text, ok := strings.Cut(string(out), "Usage:\n")
	if !ok {
		t.Fatalf("%s --help shows no usage: %s", command, out)
	}
	u := &usage{flags: map[string]string{}, nested: map[string]bool{}}
	first, _, _ := strings.Cut(text, "\n")
	u.args = len(argument.FindAllString(first, -1))
	if _, commands, ok := strings.Cut(text, "Available Commands:\n"); ok {
		commands, _, _ = strings.Cut(commands, "\n\n")
		for _, m := range nestLine.FindAllStringSubmatch(commands, -1) {
			u.nested[m[1]] = true
		}
	}
	for _, m := range flagLine.FindAllStringSubmatch(text, -1) {
		u.flags[m[1]] = m[2]
	}
	if u.flags["help"] != "" || len(u.flags) == 0 {
		t.Fatalf("%s --help shows no flags: %s", command, out)
	}
	return u
}
