package socknotify_test

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// allowed says what each package of the library may import of this module. Imports point down: the façade, the
// contract, the seam, one package for each backend. A pattern is that of path.Match.
var allowed = []struct {
	pkg     string
	imports []string
}{
	{".", []string{"internal/backend", "internal/backend/system", "internal/fdstate", "internal/port", "sock"}},
	{"server", []string{".", "internal/clock", "internal/serving", "internal/unwrap", "internal/wheel",
		"metrics", "server/internal/conn", "server/internal/engine", "sock"}},
	{"server/internal/conn", []string{".", "internal/clock", "internal/fdstate", "internal/serving",
		"internal/tlsrecord", "internal/wheel", "metrics", "server/internal/engine", "sock"}},
	{"server/internal/engine", []string{".", "internal/serving", "sock"}},
	{"server/handover", []string{"internal/unwrap", "sock"}},
	{"park", []string{".", "internal/clock", "internal/durations", "internal/muxed", "internal/nowait",
		"internal/serving", "internal/sparse", "internal/tlsrecord", "internal/unwrap", "internal/wheel", "metrics"}},
	{"websocket", []string{".", "internal/clock", "internal/durations", "internal/nowait", "internal/serving", "metrics", "park"}},
	{"debug", []string{".", "internal/debugdata", "internal/observe", "internal/port", "internal/serving", "metrics", "park", "server", "sock"}},
	{"metrics", nil},
	{"sock", []string{"internal/fdstate"}},
	{"overlapped", []string{".", "internal/backend/system", "internal/operation", "internal/port", "sock"}},
	{"internal/operation", []string{"internal/backend", "internal/fdstate", "internal/lost", "internal/port", "sock"}},
	{"internal/observe", []string{"internal/port", "internal/sparse", "sock"}},
	{"internal/port", []string{"internal/backend", "internal/fdstate", "internal/sparse", "sock"}},
	{"internal/backend/system", []string{"internal/backend", "internal/backend/*"}},
	{"internal/backend/*", []string{"internal/backend", "internal/backend/unixsock", "internal/backend/winsock"}},
	{"internal/backend", nil},
	{"internal/serving", []string{"internal/clock"}},
	{"internal/debugdata", nil},
	{"internal/clock", nil},
	{"internal/durations", nil},
	{"internal/lost", nil},
	{"internal/muxed", nil},
	{"internal/nowait", nil},
	{"internal/fdstate", nil},
	{"internal/sparse", nil},
	{"internal/tlsrecord", nil},
	{"internal/unwrap", []string{"internal/tlsrecord"}},
	{"internal/wheel", []string{"internal/clock"}},
}

// Every package of the library imports only what the table above allows, on each system, and is in the table.
func TestImports(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err) // tests that were built elsewhere
	}
	const module = "github.com/socknotify/socknotify"
	for _, system := range []string{"linux", "windows", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`,
			".", "./sock", "./server", "./server/handover", "./park", "./websocket", "./debug", "./overlapped")
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		short := func(pkg string) (string, bool) {
			rest, ours := strings.CutPrefix(pkg, module)
			rest = strings.TrimPrefix(rest, "/")
			if rest == "" {
				rest = "."
			}
			return rest, ours
		}
		found := 0
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			pkg, ours := short(words[0])
			if !ours {
				continue
			}
			found++
			at := slices.IndexFunc(allowed, func(r struct {
				pkg     string
				imports []string
			}) bool {
				ok, _ := path.Match(r.pkg, pkg)
				return ok
			})
			if at < 0 {
				t.Errorf("%s: the library imports %s, which is not in the table", system, pkg)
				continue
			}
			for _, word := range words[1:] {
				imported, ours := short(word)
				if ours && !slices.ContainsFunc(allowed[at].imports, func(p string) bool {
					ok, _ := path.Match(p, imported)
					return ok
				}) {
					t.Errorf("%s: %s must not import %s", system, pkg, imported)
				}
			}
		}
		if found < 8 {
			t.Errorf("%s: only %d packages of this module", system, found)
		}
	}
}
