package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// run1 runs a command, and returns its status and output.
func run1(t *testing.T, args ...string) (status int, out, wrong string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = command(t.Context(), args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// A token of the command allows what its flags say, and no more. Its secret is made once.
func TestToken(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	sign := func(args ...string) string {
		t.Helper()
		status, out, wrong := run1(t, append([]string{"token", "--jwt-secret", secret}, args...)...)
		if status != 0 {
			t.Fatalf("status %d: %s", status, wrong)
		}
		return strings.TrimSpace(out)
	}
	alice := sign("--new", "--sub", "alice", "--read", "a.*,live.>", "--write", "a.1", "--issuer", "me", "--audience", "push")
	if status, _, wrong := run1(t, "token", "--jwt-secret", secret, "--new"); status != 1 || !strings.Contains(wrong, "exists") {
		t.Errorf("a secret was made again: status %d: %s", status, wrong)
	}
	info, err := os.Stat(secret)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v", info.Mode())
	}
	url, _, _ := start(t, "--store", t.TempDir(), "--jwt-secret", secret, "--presence", "a.*", "--jwt-issuer", "me", "--jwt-audience", "push")
	backend := sign("--presence", "a.1", "--control", "--issuer", "me", "--audience", "push", "--expires", "1m")
	other := sign("--read", ">", "--issuer", "other", "--audience", "push")
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"POST", "/publish?topic=a.1", alice, 200},
		{"POST", "/publish?topic=a.2", alice, 403},
		{"GET", "/poll?last=1&topic=a.*", alice, 200},
		{"GET", "/poll?last=1&topic=b", alice, 403},
		{"GET", "/presence?topic=a.1", alice, 403},
		{"GET", "/presence?topic=a.1", backend, 200},
		{"POST", "/disconnect?user=alice", backend, 202},
		{"POST", "/disconnect?user=alice", alice, 403},
		{"GET", "/poll?last=1&topic=a.*", backend, 403},
		{"GET", "/poll?last=1&topic=a.*", other, 401},
	} {
		if code, body := ask(t, c.method, url+c.path+"&token="+c.token, bodyOf(c.method)); code != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, body, c.status)
		}
	}
	for args, want := range map[string]string{
		"":                                    "--jwt-secret",
		"--jwt-secret x --key y":              "want one",
		"--jwt-secret x --jwks-file y":        "--key",
		"--jwt-secret x --read a..b":          "a..b",
		"--jwt-secret x --expires 0s":         "--expires",
		"--jwt-secret x y":                    "unexpected",
		"--jwt-secret x --sub " + long(257):   "--sub",
		"--jwt-secret x --nothing":            "nothing",
		"--jwt-secret /no/such":               "/no/such",
		"--key /no/such":                      "/no/such",
		"--key " + secret:                     "--key",
		"--jwt-secret " + secret + "/x --new": "not a directory",
	} {
		status, _, wrong := run1(t, append([]string{"token"}, strings.Fields(args)...)...)
		if status == 0 || !strings.Contains(wrong, want) {
			t.Errorf("%s: status %d: %s", args, status, wrong)
		}
	}
}

// bodyOf returns an event for a POST.
func bodyOf(method string) string { return map[string]string{"POST": "x"}[method] }

func long(n int) string { return strings.Repeat("x", n) }

// A key pair of the command is in its set of keys, with which a gateway verifies tokens.
func TestTokenKeys(t *testing.T) {
	dir := t.TempDir()
	key, set := filepath.Join(dir, "key.pem"), filepath.Join(dir, "jwks.json")
	status, first, wrong := run1(t, "token", "--key", key, "--new", "--jwks-file", set, "--sub", "alice", "--read", ">", "--mercure-publish", "*")
	if status != 0 {
		t.Fatalf("status %d: %s", status, wrong)
	}
	again := filepath.Join(dir, "again.json")
	status, second, wrong := run1(t, "token", "--key", key, "--jwks-file", again, "--write", ">")
	if status != 0 || !bytes.Equal(must1(os.ReadFile(set)), must1(os.ReadFile(again))) {
		t.Fatalf("the same key has another set: status %d: %s", status, wrong)
	}
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	var keys struct{ Keys []struct{ KID string } }
	must(t, json.Unmarshal(must1(os.ReadFile(set)), &keys))
	for _, text := range []string{first, second} {
		token, _, err := jwt.NewParser().ParseUnverified(strings.TrimSpace(text), jwt.MapClaims{})
		must(t, err)
		if len(keys.Keys) != 1 || token.Header["kid"] != keys.Keys[0].KID || token.Method.Alg() != "EdDSA" {
			t.Errorf("the header is %v, and the set %+v", token.Header, keys)
		}
	}
	t.Setenv("SSL_CERT_FILE", writeCertificate(t, server))
	url, _, _ := startInProcess(t, "--jwks", server.URL+"/jwks.json", "--jwks-private")
	for path, token := range map[string]string{"/poll?last=1&topic=a": first, "/publish?topic=a": second} {
		method := map[bool]string{true: "POST", false: "GET"}[strings.HasPrefix(path, "/publish")]
		if code, body := ask(t, method, url+path+"&token="+strings.TrimSpace(token), bodyOf(method)); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// writeCertificate writes that of a server to a file.
func writeCertificate(t *testing.T, server *httptest.Server) string {
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return authority.Put(t, t.TempDir(), "server.pem", b)
}

// Flags of a file are as those of the command line, which count before them. What is no flag is refused by
// its name and line.
func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string { return authority.Put(t, dir, "push.yaml", []byte(text)) }
	addrs := freeport.Addrs(t, 2)
	secret := authority.Put(t, dir, "secret", []byte(long(32)))
	file := write(fmt.Sprintf(`
# of a node
addr: %s
debug-addr: %s
name: from-file
store: %s
jwt-secret: %s
max-conns-per-user: 3
drain: 100ms
origins: [https://a.example, https://b.example]
demo: true
presence: room.*
topics:
  orders:
    read: [alice]
    write: []
  fresh: {history: false, presence: true}
`, addrs[0], addrs[1], filepath.Join(dir, "store"), secret))
	o, err := parse([]string{"--config", file, "--name", "from-line", "--origins", ""}, io.Discard)
	must(t, err)
	if o.node.Name != "from-line" || o.config.MaxConnsPerUser != 3 || o.drain != 100*time.Millisecond || !o.demo ||
		len(o.config.Origins) != 0 || len(o.config.Topics) != 2 || !o.config.Topics["fresh"].NoHistory ||
		!*o.config.Topics["fresh"].Presence || len(o.config.Topics["orders"].Read) != 1 || o.config.Topics["orders"].Write == nil {
		t.Errorf("got %+v", o)
	}
	o, err = parse([]string{"--config=" + file}, io.Discard)
	must(t, err)
	if o.node.Name != "from-file" || len(o.config.Origins) != 2 {
		t.Errorf("got %+v", o)
	}
	url, _, _ := startInProcess(t, "--config", file)
	_, alice, _ := run1(t, "token", "--jwt-secret", secret, "--sub", "alice", "--read", ">", "--write", ">")
	_, bob, _ := run1(t, "token", "--jwt-secret", secret, "--sub", "bob", "--read", ">", "--write", ">")
	for path, want := range map[string]int{"GET /poll?last=1&topic=orders.1&token=" + alice: 200, "GET /poll?last=1&topic=orders.1&token=" + bob: 403,
		"POST /publish?topic=orders.1&token=" + alice: 403, "POST /publish?topic=other&token=" + bob: 200} {
		method, path, _ := strings.Cut(strings.TrimSpace(path), " ")
		if code, body := ask(t, method, url+path, bodyOf(method)); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	for text, want := range map[string]string{
		"adr: x":                       "line 1: adr: no such name",
		"name: a\nconfig: x":           "line 2: config: no such name",
		"version: true":                "version",
		"max-conns: many":              "line 1: max-conns:",
		"name: a\nname: b":             "name",
		"[a]":                          "names of flags",
		"name: {a: b}":                 "want a value",
		"origins: ['a,b']":             "without commas",
		"a: b: c":                      "push.yaml",
		"topics: {a: {histori: true}}": "histori",
		"topics: {a: {read: [alice]}}": "need --jwt-secret",
		"sync: sometimes":              "--sync sometimes",
		"topics: [a]":                  "topics",
	} {
		status, _, wrong := run1(t, "--config", write(text))
		if status != 2 || !strings.Contains(wrong, want) {
			t.Errorf("%q: status %d: %s", text, status, wrong)
		}
	}
	if status, _, wrong := run1(t, "--config", "/no/such"); status != 2 || !strings.Contains(wrong, "/no/such") {
		t.Errorf("status %d: %s", status, wrong)
	}
	if _, err := parse([]string{"--config", write("")}, io.Discard); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	status, _, wrong := run1(t, "--config", write("name: x\naddr: 127.0.0.1:0\nstore: "+t.TempDir()+"\ntopics: {a.b: {}}"))
	if status != 1 || !strings.Contains(wrong, "a.b") {
		t.Errorf("status %d: %s", status, wrong)
	}
}

// startInProcess starts the command with its address in a configuration, or else on one of its own, in a process of its own, whose
// environment is that of the test.
func startInProcess(t *testing.T, args ...string) (url string, p *os.Process, kill func()) {
	t.Helper()
	if args[0] != "--config" {
		addr := freeport.Addrs(t, 1)[0]
		args = append(args, "--addr", addr, "--name", "one", "--store", t.TempDir())
		url = "http://" + addr
	} else {
		o, err := parse(args, io.Discard)
		must(t, err)
		url = "http://" + o.addr
	}
	p, kill = startProcess(t, args...)
	until(t, "the command is ready", func() bool {
		code, _ := ask(t, "GET", url+"/readyz", "")
		return code == http.StatusOK
	})
	return url, p, kill
}

// check says for each thing whether a start would work, and its status whether all does.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	ca, other := authority.New(t, "ca"), authority.New(t, "other")
	cert, key, caFile := ca.Write(t, t.TempDir(), "good", "127.0.0.1", 90*24*time.Hour)
	soonCert, soonKey, _ := ca.Write(t, t.TempDir(), "soon", "127.0.0.1", time.Hour)
	oldCert, oldKey, _ := ca.Write(t, t.TempDir(), "old", "127.0.0.1", -time.Minute)
	strange, strangeKey, _ := other.Write(t, t.TempDir(), "strange", "127.0.0.1", time.Hour)
	secret := authority.Put(t, dir, "secret", []byte(long(32)))
	short := authority.Put(t, dir, "short", []byte("short"))
	set := []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"odd","kid":"k"}]}`)
	var late atomic.Bool
	jwks := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if late.Load() {
			w.Header().Set("Date", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat))
		}
		if r.URL.Path == "/none" {
			io.WriteString(w, `{"keys":[]}`)
			return
		}
		w.Write(set)
	}))
	defer jwks.Close()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	addrs := freeport.Addrs(t, 4)
	cluster := fmt.Sprintf("--cluster %s --routes %s,%s,%s ", addrs[1], addrs[1], busy.Addr(), addrs[2])
	files := func(cert, key string) string {
		return fmt.Sprintf("--cluster-cert %s --cluster-key %s --cluster-ca %s", cert, key, caFile)
	}
	folder := authority.Put(t, dir, "file", nil)
	for _, c := range []struct {
		args   string
		status int
		want   []string
	}{
		{"", 0, []string{"ok    flags\n", "ok    --addr: ", "ok    --store", "warn  tokens", "warn  clock"}},
		{"--jwt-secret " + secret + " --cert " + cert + " --key " + key + " --hosts 127.0.0.1", 0,
			[]string{"ok    --jwt-secret", "ok    --cert: for 127.0.0.1, until"}},
		{"--cert " + soonCert + " --key " + soonKey, 0, []string{"warn  --cert: it expires in 1h"}},
		{"--cert " + oldCert + " --key " + oldKey, 1, []string{"FAIL  --cert: it has expired"}},
		{"--cert " + cert + " --key " + strangeKey, 1, []string{"FAIL  --cert: "}},
		{"--cert " + cert + " --key " + key + " --hosts push.example.org", 1, []string{"FAIL  --cert: it is for 127.0.0.1, and for none of push.example.org"}},
		{"--sync sometimes", 1, []string{"FAIL  flags: --sync"}},
		{"--nothing", 1, []string{"FAIL  flags: "}},
		{"--jwt-secret " + short, 1, []string{"FAIL  --jwt-secret: --jwt-secret: want at least 32 bytes", "ok    --store"}},
		{"--restore /no/such", 1, []string{"FAIL  --restore"}},
		{"--presence a..b", 1, []string{"FAIL  --presence"}},
		{"--store " + folder, 1, []string{"FAIL  --store"}},
		{"--debug-addr " + busy.Addr().String(), 1, []string{"FAIL  --debug-addr: "}},
		{cluster + files(cert, key), 0, []string{"ok    --cluster-cert: ", "ok    --routes " + busy.Addr().String(), "warn  --routes " + addrs[2] + ": nothing"}},
		{cluster + files(strange, strangeKey), 1, []string{"FAIL  --cluster-cert: "}},
		{cluster + files(oldCert, oldKey), 1, []string{"FAIL  --cluster-cert: it has expired"}},
		{"--cluster " + addrs[1] + " --routes " + addrs[1] + ",no.such.host.invalid:1 --cluster-insecure", 1, []string{"FAIL  --routes no.such.host.invalid:1"}},
		{"--jwks " + jwks.URL + " --jwks-private", 0, []string{": 1 keys can be used", `kid "k"`, "ok    clock: as that of https://127.0.0.1"}},
		{"--jwks " + jwks.URL + "/none --jwks-private", 1, []string{"no key that can be used"}},
		{"--jwks " + jwks.URL, 1, []string{"not public"}},
		{"late --jwks " + jwks.URL + " --jwks-private", 1, []string{"FAIL  clock: that of https://127.0.0.1", "differs by -"}},
		{"--nats nats://" + addrs[3], 1, []string{"FAIL  --nats"}},
		{"--webhook-connect https://127.0.0.1:1/x --webhook-private --webhook-secret " + secret, 1, []string{"FAIL  webhooks of 127.0.0.1:1"}},
		{"--webhook-connect " + jwks.URL + " --webhook-private --webhook-secret " + secret, 0, []string{"ok    webhooks of 127.0.0.1"}},
		{"--webhook-connect ftp://x --webhook-secret " + secret, 1, []string{"FAIL  --webhook-"}},
	} {
		args := strings.Fields(c.args)
		late.Store(len(args) > 0 && args[0] == "late")
		if late.Load() {
			args = args[1:]
		}
		store := filepath.Join(t.TempDir(), "push-data", "a")
		args = append([]string{"check", "--addr", addrs[0], "--name", "one", "--store", store}, args...)
		check := func() (int, string) { return checkInProcess(t, writeCertificate(t, jwks), args...) }
		if !strings.Contains(c.args, jwks.URL) { // no certificate of a server need be trusted
			check = func() (int, string) {
				status, out, _ := run1(t, args...)
				return status, out
			}
		}
		status, out := check()
		if status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.args, status, c.status, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in %s", c.args, want, out)
			}
		}
		if _, err := os.Stat(filepath.Dir(store)); !os.IsNotExist(err) {
			t.Errorf("%s: it has left %s: %v", c.args, store, err)
		}
	}
}

// checkInProcess runs the command in a process of its own that trusts the certificates of a file, and returns its status
// and output.
func checkInProcess(t *testing.T, trusts string, args ...string) (status int, out string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), must1(os.Executable()))
	c.Env = append(os.Environ(), commandEnv+"="+strings.Join(args, " "), "SSL_CERT_FILE="+trusts)
	stdin, err := c.StdinPipe()
	must(t, err)
	defer stdin.Close() // the process ends with the test's
	b, err := c.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(b)
}
