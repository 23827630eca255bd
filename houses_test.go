package socknotify_test

import (
	"bytes"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// A house is a part of the tree that can be read without the others, but for what it imports.
type house struct {
	name string
	// packages are patterns, of which * stands for one element of a path, and /... at the end for all below.
	packages []string
	// imports are the houses that any package of this one may import.
	imports []string
	// exceptions are other packages, by the package that may import them. Each has its reason beside it.
	exceptions map[string][]string
}

// Imports point down: a house imports those above it in this list, and no others.
var houses = []house{
	{name: "pages", packages: []string{"internal/sparse"}}, // a table by descriptor, of the kernel and of park
	// The kernel has six floors.
	{name: "backends", packages: []string{"internal/kernel/backend/..."}},
	{name: "descriptors", packages: []string{"internal/kernel/fdstate", "internal/kernel/lost"}},
	{name: "sockets", packages: []string{"sock"}, imports: []string{"descriptors"}},
	{name: "contract", packages: []string{"internal/kernel/port"}, imports: []string{"pages", "descriptors", "sockets"},
		exceptions: map[string][]string{"internal/kernel/port": {"internal/kernel/backend"}}}, // the seam, and no backend behind it
	{name: "operations", packages: []string{"internal/kernel/operation", "internal/kernel/observe"},
		imports:    []string{"pages", "descriptors", "sockets", "contract"},
		exceptions: map[string][]string{"internal/kernel/operation": {"internal/kernel/backend"}}},
	{name: "façade", packages: []string{".", "overlapped"}, imports: []string{"sockets", "contract"},
		exceptions: map[string][]string{
			".":          {"internal/kernel/backend", "internal/kernel/backend/system", "internal/kernel/fdstate"},
			"overlapped": {"internal/kernel/operation"},
		}},
	{name: "metrics' types", packages: []string{"metrics"}},
	{name: "serving", packages: []string{"internal/serving", "internal/serving/clock", "internal/serving/durations", "internal/serving/muxed",
		"internal/serving/nowait", "internal/serving/tlsrecord", "internal/serving/unwrap", "internal/serving/wheel"}},
	// What parks connections, for the packages of park's house.
	{name: "parking", packages: []string{"internal/serving/parking", "internal/serving/carrier", "internal/serving/group", "internal/serving/nethttp"},
		imports: []string{"serving", "metrics' types"},
		exceptions: map[string][]string{
			"internal/serving/parking": {".", "internal/sparse"}, "internal/serving/group": {"."}, // the port of a lot, and ErrInvalid
		}},
	{name: "park", packages: []string{"park", "park/http2/...", "stream", "tunnel", "websocket", "sse"},
		imports: []string{"parking", "serving", "metrics' types"},
		exceptions: map[string][]string{
			"park": {"."}, "park/http2": {"."}, "stream": {"."}, "tunnel": {"."}, "websocket": {"."}, "sse": {"."}, // ErrInvalid, and the port of a lot
		}},
	{name: "server", packages: []string{"server", "server/internal/...", "server/handover", "server/proxyproto"},
		imports: []string{"serving", "metrics' types"},
		exceptions: map[string][]string{
			"server": {".", "sock"}, "server/internal/engine": {".", "sock"}, "server/handover": {"sock"}, "server/proxyproto": {"sock"},
			// A connection holds its socket's state, so that Read and Write need no look-up.
			"server/internal/conn": {".", "sock", "internal/kernel/fdstate"},
		}},
	{name: "debug", packages: []string{"debug", "internal/debugdata"}, imports: []string{"metrics' types", "park", "server"},
		exceptions: map[string][]string{
			// The page shows the inside of a port, and asks for the host as all pages of the module do.
			"debug": {".", "sock", "internal/kernel/observe", "internal/kernel/port", "internal/serving"},
		}},
	{name: "metrics", packages: []string{"metrics/..."}, imports: []string{"metrics' types", "park", "server"},
		exceptions: map[string][]string{
			"metrics/otel": {"."}, "metrics/prometheus": {"."}, "metrics/internal/metric": {"."},
			"metrics/prometheus/tutorial": {"debug"},
		}},
	// What an event passes, which knows nothing of what the rest of the gateway adds.
	{name: "gateway's core", packages: []string{"gateway/internal/event", "gateway/internal/stream", "gateway/internal/hub"},
		imports:    []string{"park"},
		exceptions: map[string][]string{"gateway/internal/stream": {"."}}}, // ErrInvalid
	{name: "gateway", packages: []string{"gateway/..."}, imports: []string{"park", "metrics' types", "gateway's core"},
		exceptions: map[string][]string{
			"gateway": {"."}, "gateway/internal/keys": {"."}, // ErrInvalid
			"gateway/cmd/socknotify-push": {"debug", "metrics/prometheus"},
		}},
	{name: "Caddy's modules", packages: []string{"caddy/..."}, imports: []string{"park", "metrics' types"},
		exceptions: map[string][]string{
			// What a listening socket has, when it is closed.
			"caddy/listener": {"internal/serving/nowait", "internal/serving/unwrap"},
		}},
	{name: "C library", packages: []string{"c/..."}, exceptions: map[string][]string{
		// A completion of an overlapped call is posted with a kind of its own, which the port has and its façade has not.
		"c": {".", "overlapped", "sock", "internal/kernel/port", "internal/kernel/backend"},
	}},
	{name: "certificates", packages: []string{"internal/selfcert"}}, // of tests, examples and the command
	{name: "load", packages: []string{"internal/load"}, exceptions: map[string][]string{"internal/load": {".", "sock"}}},
	{name: "command", packages: []string{"cmd/socknotify"},
		imports:    []string{"park", "server", "debug", "metrics' types", "certificates", "load"},
		exceptions: map[string][]string{"cmd/socknotify": {".", "sock"}}},
	{name: "examples", packages: []string{"examples/..."}, imports: []string{"façade", "park", "server", "debug", "certificates"},
		exceptions: map[string][]string{
			"examples/*": {"sock"}, "examples/tutorial/*": {"sock"}, "examples/internal/program": {"internal/test/leaks"}, // for their tests
		}},
	// What measures and tests may import everything, and nothing imports it.
	{name: "lab", packages: []string{"bench/...", "internal/test/...", "test/..."}, imports: []string{"*"}},
}

func matches(pattern, pkg string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == below || strings.HasPrefix(pkg, below+"/")
	}
	ok, _ := path.Match(pattern, pkg)
	return ok
}

// houseOf returns the first house that has the package.
func houseOf(pkg string) *house {
	for i := range houses {
		if slices.ContainsFunc(houses[i].packages, func(p string) bool { return matches(p, pkg) }) {
			return &houses[i]
		}
	}
	return nil
}

// allows reports whether pkg, of h, may import imported, of to.
func (h *house) allows(pkg, imported string, to *house) bool {
	if h == to || slices.Contains(h.imports, to.name) || slices.Contains(h.imports, "*") {
		return true
	}
	for of, others := range h.exceptions {
		if matches(of, pkg) && slices.Contains(others, imported) {
			return true
		}
	}
	return false
}

// Every package imports only what the table above allows, on each system, and every exception is used.
func TestHouses(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err) // tests that were built elsewhere
	}
	const module = "github.com/socknotify/socknotify"
	short := func(pkg string) (string, bool) {
		rest, ours := strings.CutPrefix(pkg, module)
		if rest = strings.TrimPrefix(rest, "/"); rest == "" {
			rest = "."
		}
		return rest, ours
	}
	patterns := []string{"./..."}
	if work, err := exec.Command("go", "env", "GOWORK").Output(); err == nil && len(bytes.TrimSpace(work)) > 1 && string(bytes.TrimSpace(work)) != "off" {
		patterns = append(patterns, "./bench/...", "./caddy/...", "./cmd/socknotify/...", "./gateway/...", "./metrics/otel/...",
			"./metrics/prometheus/...", "./park/http2/...", "./server/proxyproto/...", "./test/...")
	}
	type edge struct{ of, to string }
	used, listed := map[edge]bool{}, map[string]bool{}
	for _, system := range []string{"linux", "windows", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`}, patterns...)...)
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=1") // nothing is compiled
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			pkg, _ := short(words[0])
			found++
			listed[pkg] = true
			from := houseOf(pkg)
			if from == nil {
				t.Errorf("%s: %s is in no house", system, pkg)
				continue
			}
			for _, word := range words[1:] {
				imported, ours := short(word)
				if !ours {
					continue
				}
				used[edge{pkg, imported}] = true
				switch to := houseOf(imported); {
				case to == nil:
					t.Errorf("%s: %s is in no house", system, imported)
				case !from.allows(pkg, imported, to):
					t.Errorf("%s: %s, of %s, must not import %s, of %s", system, pkg, from.name, imported, to.name)
				}
			}
		}
		if found < 40 {
			t.Errorf("%s: only %d packages", system, found)
		}
	}
	for i, h := range houses {
		for _, name := range h.imports {
			if above := houses[:i]; name != "*" && !slices.ContainsFunc(above, func(h house) bool { return h.name == name }) {
				t.Errorf("%s imports %s, which is not above it", h.name, name)
			}
		}
		for of, others := range h.exceptions {
			known := slices.ContainsFunc(slices.Collect(maps.Keys(listed)), func(pkg string) bool { return matches(of, pkg) })
			for _, to := range others {
				needed := false
				for e := range used {
					needed = needed || e.to == to && matches(of, e.of)
				}
				if known && !needed { // without go.work the other modules are not listed
					t.Errorf("%s need not import %s any more: the exception can go", of, to)
				}
			}
		}
	}
}
