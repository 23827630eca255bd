// Command nethttp runs the tests of net/http, of the Go that runs it, with every server served by
// package park:
//
//	go run ./internal/test/nethttp [-http2] [-tunnels] [-run regexp] [-count 1] [package ...]
//
// The packages are those of the standard library (net/http by default, and net/http/httputil), or of
// modules, such as connectrpc.com/connect@v1.21.1. With -http2, HTTP/2 is served by park/http2 too.
// With -tunnels, the package is net/http/httputil, its servers are those of net/http, and each of its
// tests' ReverseProxy makes tunnels.
//
// Nothing of Go is copied: go build -overlay gives net/http a file with a hook, and Serve, ServeTLS,
// Shutdown, Close and SetKeepAlivesEnabled of http.Server ask it first. Servers in the bubbles of
// testing/synctest stay as they are, because their connections have no descriptor. Tests that are known
// to differ are in differs.go, each with its reason; any other failure is one of this command, and so
// is a test in that list that passes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/test/results"
)

func main() {
	h2 := flag.Bool("http2", false, "serve HTTP/2 by park/http2")
	flag.BoolVar(&tunnels, "tunnels", false, "let each ReverseProxy of net/http/httputil make tunnels")
	filter := flag.String("run", "", "as go test -run")
	count := flag.Int("count", 1, "as go test -count")
	verbose := flag.Bool("v", false, "print what failing tests print, also those that are known to differ")
	flag.Parse()
	packages := flag.Args()
	if tunnels {
		packages = []string{proxyPackage}
	} else if len(packages) == 0 {
		packages = []string{"net/http", "net/http/httputil"}
	}
	failed := false
	for _, pkg := range packages {
		if err := run(pkg, *h2, *filter, *count, *verbose); err != nil {
			fmt.Printf("%s: %v\n", pkg, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// replacement is code at the beginning of a method of http.Server.
type replacement struct{ after, insert string }

var replacements = []replacement{
	{"func (s *Server) Serve(l net.Listener) error {\n",
		"\tif h := socknotifyServer(s, l); h != nil {\n\t\treturn h.Serve(l)\n\t}\n"},
	{"func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {\n",
		"\tif h := socknotifyServer(s, l); h != nil {\n\t\treturn h.ServeTLS(l, certFile, keyFile)\n\t}\n"},
	{"func (s *Server) Shutdown(ctx context.Context) error {\n",
		"\tif h, done := socknotifyCall(s); h != nil {\n\t\tdefer done()\n\t\treturn h.Shutdown(ctx)\n\t}\n"},
	{"func (s *Server) Close() error {\n",
		"\tif h, done := socknotifyCall(s); h != nil {\n\t\tdefer done()\n\t\treturn h.Close()\n\t}\n"},
	{"func (s *Server) SetKeepAlivesEnabled(v bool) {\n",
		"\tsocknotifyServer(s, nil) // Serve may not have been called yet\n\tif h, done := socknotifyCall(s); h != nil {\n\t\tdefer done()\n\t\th.SetKeepAlivesEnabled(v)\n\t\treturn\n\t}\n"},
}

// tunnels is set by its flag.
var tunnels bool

const proxyPackage = "net/http/httputil"

// proxyReplacements are for httputil.ReverseProxy. park copies a proxy, and the field with it.
var proxyReplacements = []replacement{
	{"func (p *ReverseProxy) ServeHTTP(rw http.ResponseWriter, req *http.Request) {\n",
		"\tif SocknotifyProxy != nil && !p.socknotify {\n\t\town := *p\n\t\town.socknotify = true\n" +
			"\t\tSocknotifyProxy(&own).ServeHTTP(rw, req)\n\t\treturn\n\t}\n"},
	{"type ReverseProxy struct {\n", "\tsocknotify bool\n"},
}

// proxyHook is added to package httputil, and proxyInstaller to its tests. Each tunnel adds a byte to a
// file.
const (
	proxyHook = `package httputil

import "net/http"

var SocknotifyProxy func(*ReverseProxy) http.Handler
`
	proxyInstaller = `package %s

import (
	"net/http/httputil"
	"os"

	"github.com/socknotify/socknotify/park"
)

func init() {
	count, err := os.OpenFile(%q, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	tunnels := &park.Tunnels{OnClose: func(*park.Tunnel, error) { count.WriteString("x") }}
	httputil.SocknotifyProxy = tunnels.ReverseProxy
}
`
)

// hook is added to package net/http.
const hook = `package http

import (
	"context"
	"fmt"
	"internal/synctest"
	"net"
	"sync"
)

type SocknotifyServer interface {
	Serve(net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(context.Context) error
	Close() error
	SetKeepAlivesEnabled(bool)
}

// SocknotifyNew makes the server that serves in the place of one of package http.
var SocknotifyNew func(*Server) SocknotifyServer

var socknotify struct {
	sync.Mutex
	servers map[*Server]SocknotifyServer
	calls   map[*Server]int // calls of a method that are inside the other server
}

// socknotifyServer returns the server that serves l, or nil for one of the other server's own calls.
func socknotifyServer(s *Server, l net.Listener) SocknotifyServer {
	if SocknotifyNew == nil || synctest.IsInBubble() || fmt.Sprintf("%T", l) == "*park.listener" {
		return nil
	}
	k := &socknotify
	k.Lock()
	defer k.Unlock()
	if k.servers == nil {
		k.servers, k.calls = map[*Server]SocknotifyServer{}, map[*Server]int{}
	}
	h := k.servers[s]
	if h == nil {
		h = SocknotifyNew(s)
		k.servers[s] = h
	}
	return h
}

// socknotifyCall returns the server that serves in the place of s, unless it makes this call itself.
func socknotifyCall(s *Server) (h SocknotifyServer, done func()) {
	k := &socknotify
	k.Lock()
	defer k.Unlock()
	if h = k.servers[s]; h == nil || k.calls[s] > 0 {
		return nil, nil
	}
	k.calls[s]++
	return h, func() { k.Lock(); defer k.Unlock(); k.calls[s]-- }
}
`

// installer is added to the tests of a package. Each server adds a byte to a file.
const installer = `package %s

import (
	"net/http"
	"os"

	"github.com/socknotify/socknotify/park"
	%s
)

func init() {
	count, err := os.OpenFile(%q, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	http.SocknotifyNew = func(s *http.Server) http.SocknotifyServer {
		count.WriteString("x")
		return &park.HTTPServer{Server: s%s}
	}
}
`

// served is the file that counts servers, and joined that which counts tunnels.
const (
	served = "served"
	joined = "joined"
)

func run(pkg string, h2 bool, filter string, times int, verbose bool) error {
	work, err := os.MkdirTemp("", "nethttp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dir, err := moduleFor(work, pkg)
	if err != nil {
		return err
	}
	path, _, _ := strings.Cut(pkg, "@")
	overlay, err := overlayFor(work, dir, path, h2)
	if err != nil {
		return err
	}
	args := []string{"test", "-json", "-vet=off", "-timeout=20m", "-overlay", overlay, "-count", strconv.Itoa(times)}
	if filter != "" {
		args = append(args, "-run", filter)
	}
	cmd := exec.Command("go", append(args, path)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, testErr := cmd.Output()
	counted, what := served, "servers were served by park"
	if tunnels {
		counted, what = joined, "connections became tunnels"
	}
	count, err := os.ReadFile(filepath.Join(work, counted))
	if err != nil {
		return fmt.Errorf("no %s: %w", what, err)
	}
	fmt.Printf("%s, %s, http2 %t: %d %s\n", path, runtime.Version(), h2, len(count), what)
	return judge(path, h2, filter != "", out, testErr, verbose)
}

// moduleFor returns the folder in which go test finds a package: this repository for one of the
// standard library, otherwise a module in work that requires the package's and this repository's.
func moduleFor(work, pkg string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(file))))
	path, version, ok := strings.Cut(pkg, "@")
	if !ok {
		return root, nil
	}
	const module = "github.com/socknotify/socknotify"
	dir := filepath.Join(work, "module")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	mod := fmt.Sprintf("module tests\n\ngo 1.26.0\n\nreplace %[1]s => %[2]s\nreplace %[1]s/park/http2 => %[2]s/park/http2\n"+
		"require %[1]s v0.0.0\nrequire %[1]s/park/http2 v0.0.0\n", module, root)
	for name, text := range map[string]string{"go.mod": mod, "tests.go": fmt.Sprintf(
		"package tests\n\nimport (\n\t_ %q\n\t_ %q\n\t_ %q\n)\n", path, module+"/park", module+"/park/http2")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return "", err
		}
	}
	os.Setenv("GOWORK", "off")
	command := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "GOFLAGS=-mod=mod"), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("go %v: %w", args, err)
		}
		return strings.TrimSpace(string(out)), err
	}
	if _, err := command("get", "-t", path+"@"+version); err != nil {
		return "", err
	}
	// Files in the cache of modules cannot be overlaid, so the tests run in a copy.
	cached, err := command("list", "-m", "-f", "{{.Dir}}", path)
	if err != nil {
		return "", err
	}
	tested := filepath.Join(work, "tested")
	if err := os.CopyFS(tested, os.DirFS(cached)); err != nil {
		return "", err
	}
	if err := exec.Command("chmod", "-R", "u+w", tested).Run(); err != nil {
		return "", err
	}
	if _, err := command("mod", "edit", "-replace", path+"="+tested); err != nil {
		return "", err
	}
	_, err = command("mod", "tidy")
	if err == nil {
		_, err = command("get", "-t", path+"@"+version)
	}
	return dir, err
}

// overlayFor writes the file for -overlay.
func overlayFor(work, dir, path string, h2 bool) (string, error) {
	list := func(format, pkg string) (string, error) {
		cmd := exec.Command("go", "list", "-f", format, pkg)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	http, err := list("{{.Dir}}", "net/http")
	if err != nil {
		return "", err
	}
	server := filepath.Join(http, "server.go")
	src, err := os.ReadFile(server)
	if err != nil {
		return "", err
	}
	if src, err = insert(server, src, replacements); err != nil {
		return "", err
	}
	tested, err := list(`{{.Dir}} {{.Name}}{{if .XTestGoFiles}}_test{{end}}`, path)
	if err != nil {
		return "", err
	}
	testDir, name, _ := strings.Cut(tested, " ")
	imports, field := "", ""
	if h2 {
		imports, field = `"github.com/socknotify/socknotify/park/http2"`, ", HTTP2: new(http2.Server)"
	}
	files := map[string]string{
		server:                               string(src),
		filepath.Join(http, "socknotify.go"): hook,
		filepath.Join(testDir, "zz_socknotify_test.go"): fmt.Sprintf(installer, name, imports, filepath.Join(work, served), field),
	}
	if tunnels {
		delete(files, filepath.Join(testDir, "zz_socknotify_test.go"))
		proxy := filepath.Join(testDir, "reverseproxy.go")
		src, err := os.ReadFile(proxy)
		if err == nil {
			src, err = insert(proxy, src, proxyReplacements)
		}
		if err != nil {
			return "", err
		}
		files[proxy] = string(src)
		files[filepath.Join(testDir, "socknotify.go")] = proxyHook
		files[filepath.Join(testDir, "zz_socknotify_proxy_test.go")] =
			fmt.Sprintf(proxyInstaller, name, filepath.Join(work, joined))
	}
	replace := map[string]string{}
	for to, text := range files {
		from := filepath.Join(work, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(from, []byte(text), 0o666); err != nil {
			return "", err
		}
		replace[to] = from
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(work, "overlay.json")
	return file, os.WriteFile(file, text, 0o666)
}

// insert makes replacements in a file.
func insert(file string, src []byte, all []replacement) ([]byte, error) {
	for _, r := range all {
		if n := bytes.Count(src, []byte(r.after)); n != 1 {
			return nil, fmt.Errorf("%s has %d times: %s", file, n, r.after)
		}
		src = bytes.Replace(src, []byte(r.after), []byte(r.after+r.insert), 1)
	}
	return src, nil
}

// judge compares what the tests said with what is known to differ.
func judge(path string, h2, filtered bool, out []byte, testErr error, verbose bool) error {
	text, result := map[string]string{}, map[string]string{}
	var failed []string
	results.Read(bytes.NewReader(out), func(r results.Result) {
		if result[r.Test] == "fail" { // with -count
			return
		}
		text[r.Test], result[r.Test] = r.Output, r.Action
		if r.Action == "fail" && r.Test != "" {
			failed = append(failed, r.Test)
		}
	})
	known := func(test string) string {
		for _, d := range differences {
			if d.pkg == path && d.tunnels == tunnels && (!d.http2 || h2) && regexp.MustCompile("^(?:"+d.test+")$").MatchString(test) {
				return d.why
			}
		}
		return ""
	}
	var unexplained int
	for _, test := range failed {
		if slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			continue // a subtest says it
		}
		why := known(test)
		if why == "" {
			unexplained++
			why = "NOT EXPLAINED"
		}
		fmt.Printf("differs: %s: %s\n", test, why)
		if verbose || why == "NOT EXPLAINED" {
			fmt.Print(text[test])
		}
	}
	passed := 0
	for _, r := range result {
		if r == "pass" {
			passed++
		}
	}
	for _, d := range differences {
		if d.pkg != path || d.tunnels != tunnels || d.http2 && !h2 || filtered || d.sometimes {
			continue
		}
		if !slices.ContainsFunc(failed, regexp.MustCompile("^(?:"+d.test+")$").MatchString) {
			unexplained++
			fmt.Printf("passes, and is in the list of what differs: %s\n", d.test)
		}
	}
	fmt.Printf("%s, %s, http2 %t: %d passed, %d failed, %d not explained\n", path, runtime.Version(), h2, passed, len(failed), unexplained)
	if unexplained > 0 {
		return fmt.Errorf("%d differences are not explained", unexplained)
	}
	if testErr != nil && len(failed) == 0 {
		fmt.Print(text[""])
		return fmt.Errorf("go test: %w", testErr)
	}
	return nil
}
