package conformance

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/qemu"
)

// Every script can be parsed, and lists each case that is in Go.
func TestScripts(t *testing.T) {
	listed := make(map[string]bool)
	for _, sentence := range Sentences() {
		checks, err := checksOf(sentence)
		if err != nil {
			t.Error(err)
		}
		for _, c := range checks {
			listed[sentence+"/"+c.name] = true
		}
	}
	for name := range goCases {
		if !listed[name] {
			t.Errorf("no script lists %s, which is in Go", name)
		}
	}
}

// An error in a script names the line.
func TestScriptErrors(t *testing.T) {
	inGo := map[string]func(*env){"T9/InGo": func(*env) {}}
	const goes = "case InGo, in Go\n"
	for _, c := range []struct{ text, want string }{
		{goes, "T9.txt:1: the script does not begin with the contract's sentence"},
		{"> Said.\n", "T9.txt:1: the case InGo in Go is not listed"},
		{"> Said.\nstream s\n", `T9.txt:2: want a case, got "stream s"`},
		{"> Said.\n" + goes + "\tnone\n", "T9.txt:2: InGo is in Go, and has statements"},
		{"> Said.\ncase InGo\n\tnone\n", "T9.txt:2: InGo is in Go too"},
		{"> Said.\ncase Other, in Go\n", "T9.txt:2: there is no case Other in Go"},
		{"> Said.\n" + goes + "case A\n", "T9.txt:3: A has no statements"},
		{"> Said.\n" + goes + "case A\n\tnone\ncase A\n\tnone\n", "T9.txt:5: a second case A"},
		{"> Said.\n" + goes + "case A, at night\n\tnone\n", `T9.txt:3: unknown attribute "at night"`},
		{"> Said.\n" + goes + "case A\n\n\tnone\n\tsing\n", `T9.txt:6: unknown verb "sing"`},
		{"> Said.\n" + goes + "case A, for pair in stream sing\n\t$pair s\n\tdrain s\n\t$other s\n", `T9.txt:6: unknown verb "$other"`},
		{"> Said.\n" + goes + "case A\n\tnone\n\t\tnone\n", `T9.txt:5: indented below "none", which has no block`},
		{"> Said.\n" + goes + "case A\n\t\tnone\n", "T9.txt:4: indented by 2, and the line above is not"},
		{"> Said.\n" + goes + "case A\n\trepeat 3\n", "T9.txt:4: repeat without a block"},
		{"> Said.\n" + goes + "case A\n\tsend s\n", "T9.txt:4: send needs 2 words, got 1"},
		{"> Said.\n" + goes + "case A\n\tsend s \"x\n", "T9.txt:4: a text without its end"},
		{"> Said.\n" + goes + "case A\n\tstream s\n\tenable s in level;\n", "T9.txt:5: no verb"},
	} {
		_, err := parse("T9", c.text, inGo)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v; want %s…", c.text, err, c.want)
		}
	}
	text := "> Said.\n" + goes + "# A comment.\ncase A, sock only, for pair in streams\n\t$pair s peer # two ends\n\tsend peer \"; # ,\"\n\tdrain s \"; # ,\"\n"
	if checks, err := parse("T9", text, inGo); err != nil || len(checks) != 2 || !checks[1].sockOnly {
		t.Errorf("%+v, %v", checks, err)
	}
}

// A statement that fails names its line, what it wants and what it got. The failure is in another process.
func TestFailureNamesTheLine(t *testing.T) {
	backendtest.Need(t)
	const variable = "CONFORMANCE_TEST_FAILS"
	if os.Getenv(variable) != "" {
		checks, err := parse("T9", "> Said.\ncase A\n\tstream s\n\tenable s out level\n\tnow s in\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		checks[0].in(t, func(tb testing.TB) *socknotify.Port[any] {
			p, err := socknotify.New[any]()
			if err != nil {
				tb.Fatal(err)
			}
			return p
		})
		return
	}
	if qemu.StartsNoProgram.Here() {
		t.Skip(qemu.StartsNoProgram)
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), variable+"=1")
	out, err := c.CombinedOutput()
	for _, want := range []string{"T9.txt:5: now s in", "want [s in], got [s OUT]", "A/BySock"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v; want %q in\n%s", err, want, out)
		}
	}
}
