// Package bogo runs the TLS tests of BoringSSL against this library's TLS and against crypto/tls.
// Their runner is a client that knows each way to be wrong. Both must pass and fail the same tests.
package bogo

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The environment of a shim: whose records it makes, and the file that it notes in.
const (
	recordsEnv = "SOCKNOTIFY_BOGO_RECORDS"
	notesEnv   = "SOCKNOTIFY_BOGO_NOTES"
)

func TestMain(m *testing.M) {
	if records := os.Getenv(recordsEnv); records != "" {
		runShim(records == "ours", os.Getenv(notesEnv), os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// It needs a checkout of BoringSSL, whose directory is in SOCKNOTIFY_BORINGSSL, and takes some
// minutes.
func TestBoGo(t *testing.T) {
	dir := os.Getenv("SOCKNOTIFY_BORINGSSL")
	if dir == "" {
		t.Skip("SOCKNOTIFY_BORINGSSL does not name a checkout of BoringSSL")
	}
	runner := filepath.Join(t.TempDir(), "runner")
	source := filepath.Join(dir, "ssl/test/runner")
	build := exec.Command("go", "test", "-c", "-overlay", gcmFirst(t, source), "-o", runner, ".")
	build.Dir = source
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, _ := run(t, runner, build.Dir, "crypto/tls")
	got, taken := run(t, runner, build.Dir, "ours")
	count := make(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s, crypto/tls: %s", name, got[name], want[name])
		}
		count[got[name]]++
		if got[name] == "FAIL" {
			t.Logf("%s: FAIL, as with crypto/tls", name)
		}
	}
	t.Logf("%v; %d connections were taken over", count, taken)
	if len(got) != len(want) || count["PASS"] < 500 || taken < 200 {
		t.Errorf("%d tests, of crypto/tls %d", len(got), len(want))
	}
}

// gcmFirst returns an overlay for the build of the runner, in which it prefers AES-GCM to ChaCha20.
// Otherwise most of its connections would stay with crypto/tls.
func gcmFirst(t *testing.T, source string) string {
	name := filepath.Join(source, "cipher_suites.go")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const last = "{TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, 32"
	var moved, lines []string
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.Contains(line, last):
			lines = append(append(lines, moved...), line)
		case strings.Contains(line, "CHACHA20_POLY1305_SHA256, 32"):
			moved = append(moved, line)
		default:
			lines = append(lines, line)
		}
	}
	if len(moved) != 3 || !strings.Contains(string(b), last) {
		t.Fatalf("%s: %d suites of ChaCha20 before that of PSK", name, len(moved))
	}
	other, overlay := filepath.Join(t.TempDir(), "suites.go"), filepath.Join(t.TempDir(), "overlay")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{name: other}})
	for _, err := range []error{err, os.WriteFile(other, []byte(strings.Join(lines, "")), 0o600),
		os.WriteFile(overlay, text, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// run runs all tests against a shim. It returns their results, and the number of connections that
// were taken over.
func run(t *testing.T, runner, dir, records string) (results map[string]string, taken int) {
	temp := t.TempDir()
	out, notes := filepath.Join(temp, "results"), filepath.Join(temp, "notes")
	if err := os.WriteFile(notes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shim, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(runner, "-shim-path="+shim, "-shim-config="+config(t),
		"-allow-unimplemented", "-loose-errors", "-pipe", "-json-output="+out)
	c.Dir = dir
	c.Env = append(os.Environ(), recordsEnv+"="+records, notesEnv+"="+notes)
	text, err := c.CombinedOutput()
	b, failed := os.ReadFile(out)
	if failed != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var all struct {
		Tests map[string]struct{ Actual string }
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	results = make(map[string]string)
	for name, r := range all.Tests {
		if !strings.HasPrefix(name, "DTLS") && !strings.Contains(name, "QUIC") {
			results[name] = r.Actual
		}
	}
	info, err := os.Stat(notes)
	if err != nil {
		t.Fatal(err)
	}
	return results, int(info.Size())
}

// config returns the file that tells the runner what is not to be run.
func config(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "config")
	text := `{"DisabledTests": {"*-Async*": "", "*DTLS*": "", "*QUIC*": "", "*-SplitHandshakeRecords*": ""}}`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
