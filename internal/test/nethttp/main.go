// Command nethttp runs the tests of net/http, of the Go that runs it, with every server served by
// package park:
//
//	go run ./internal/test/nethttp [-http2] [-tunnels] [-run regexp] [package ...]
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
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/internal/test/results"
)

const module = "github.com/socknotify/socknotify"

func main() {
	h2 := flag.Bool("http2", false, "serve HTTP/2 by park/http2")
	tunnels := flag.Bool("tunnels", false, "let each ReverseProxy of net/http/httputil make tunnels")
	filter := flag.String("run", "", "as go test -run")
	flag.Parse()
	packages, how := flag.Args(), servers
	switch {
	case *tunnels:
		packages, how = []string{proxies.pkg}, proxies
	case len(packages) == 0:
		packages = []string{servers.pkg, proxies.pkg}
	}
	if *h2 && !*tunnels {
		how.imports += "\n\t\"" + module + "/park/http2\""
		how.install = strings.Replace(how.install, "Server: s", "Server: s, HTTP2: new(http2.Server)", 1)
	}
	failed := false
	for _, pkg := range packages {
		if err := run(pkg, how, *h2, *filter); err != nil {
			fmt.Printf("%s: %v\n", pkg, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// A substitution puts park in the place of a part of net/http.
type substitution struct {
	pkg, file string      // which is changed
	changes   []insertion // in file
	hook      string      // a file that is added to pkg
	// A file with an init function is added to the tests. It imports this and runs this, in which each
	// count.WriteString("x") counts what is named by counts.
	imports, install, counts string
}

// An insertion is code that follows a line.
type insertion struct{ after, insert string }

// servers lets park serve for http.Server: the changes are code at the beginning of its methods.
var servers = substitution{
	pkg: "net/http", file: "server.go",
	changes: []insertion{
		{"func (s *Server) Serve(l net.Listener) error {\n",
			"\tif h := socknotifyServer(s, l); h != nil {\n\t\treturn h.Serve(l)\n\t}\n"},
		{"func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {\n",
			"\tif h := socknotifyServer(s, l); h != nil {\n\t\treturn h.ServeTLS(l, certFile, keyFile)\n\t}\n"},
		{"func (s *Server) Shutdown(ctx context.Context) error {\n",
			"\tif h, done := socknotifyCall(s); h != nil {\n\t\tdefer done()\n\t\treturn h.Shutdown(ctx)\n\t}\n"},
		{"func (s *Server) Close() error {\n",
			"\tif h, done := socknotifyCall(s); h != nil {\n\t\tdefer done()\n\t\treturn h.Close()\n\t}\n"},
		{"func (s *Server) SetKeepAlivesEnabled(v bool) {\n",
			"\tsocknotifyServer(s, nil) // Serve may not have been called yet\n" +
				"\tif h, done := socknotifyCall(s); h != nil {\n" +
				"\t\tdefer done()\n\t\th.SetKeepAlivesEnabled(v)\n\t\treturn\n\t}\n"},
	},
	hook: serverHook,
	imports: `"net/http"

	"github.com/socknotify/socknotify/park"`,
	install: `http.SocknotifyNew = func(s *http.Server) http.SocknotifyServer {
		count.WriteString("x")
		return &park.HTTPServer{Server: s}
	}`,
	counts: "servers were served by park",
}

// proxies lets each httputil.ReverseProxy make tunnels. park copies a proxy, and the field with it.
var proxies = substitution{
	pkg: "net/http/httputil", file: "reverseproxy.go",
	changes: []insertion{
		{"func (p *ReverseProxy) ServeHTTP(rw http.ResponseWriter, req *http.Request) {\n",
			"\tif SocknotifyProxy != nil && !p.socknotify {\n\t\town := *p\n\t\town.socknotify = true\n" +
				"\t\tSocknotifyProxy(&own).ServeHTTP(rw, req)\n\t\treturn\n\t}\n"},
		{"type ReverseProxy struct {\n", "\tsocknotify bool\n"},
	},
	hook: `package httputil

import "net/http"

var SocknotifyProxy func(*ReverseProxy) http.Handler
`,
	imports: `"net/http/httputil"

	"github.com/socknotify/socknotify/tunnel"`,
	install: `tunnels := &tunnel.Tunnels{OnClose: func(*tunnel.Tunnel, error) { count.WriteString("x") }}
	httputil.SocknotifyProxy = tunnels.ReverseProxy`,
	counts: "connections became tunnels",
}

const serverHook = `package http

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

// installer is added to the tests of a package.
const installer = `package %s

import (
	"os"

	%s
)

func init() {
	count, err := os.OpenFile(%q, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	%s
}
`

func run(pkg string, how substitution, h2 bool, filter string) error {
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
	counted := filepath.Join(work, "counted")
	overlay, err := overlayFor(work, dir, path, counted, how)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-timeout=20m", "-overlay", overlay,
		"-count=1", "-run="+filter, path)
	cmd.Dir = dir
	said := map[string]results.Result{} // by test
	testErr := results.Run(cmd, func(r results.Result) { said[r.Test] = r })
	count, err := os.ReadFile(counted)
	if err != nil {
		return fmt.Errorf("no %s: %w", how.counts, cmp.Or(testErr, err))
	}
	run := fmt.Sprintf("%s, %s, http2 %t", path, runtime.Version(), h2)
	fmt.Printf("%s: %d %s\n", run, len(count), how.counts)
	known := slices.DeleteFunc(slices.Clone(differences), func(d difference) bool {
		return d.pkg != path || d.tunnels != (how.pkg == proxies.pkg) || d.http2 && !h2
	})
	passed, failed, unexplained := judge(known, filter != "", said)
	fmt.Printf("%s: %d passed, %d failed, %d not explained\n", run, passed, failed, unexplained)
	if unexplained > 0 {
		return fmt.Errorf("%d differences are not explained", unexplained)
	}
	if testErr != nil && failed == 0 {
		fmt.Print(said[""].Output)
		return fmt.Errorf("go test: %w", testErr)
	}
	return nil
}

// moduleFor returns the folder in which go test finds a package: this repository for one of the
// standard library, otherwise a copy of the module in work, which requires this repository too.
// (Files in the cache of modules cannot be overlaid.)
func moduleFor(work, pkg string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(file))))
	if !strings.Contains(pkg, "@") {
		return root, nil
	}
	os.Setenv("GOWORK", "off")
	os.Setenv("GOFLAGS", "-mod=mod") // go list and go test add what this repository needs
	var cached struct{ Dir string }
	text, err := output(work, "go", "mod", "download", "-json", pkg)
	if err == nil {
		err = json.Unmarshal([]byte(text), &cached)
	}
	dir := filepath.Join(work, "tested")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(cached.Dir))
	}
	if err == nil {
		_, err = output(dir, "go", "mod", "edit", "-replace="+module+"="+root,
			"-replace="+module+"/park/http2="+filepath.Join(root, "park", "http2"))
	}
	if err == nil {
		_, err = output(dir, "go", "get", module+"@v0.0.0", module+"/park/http2@v0.0.0")
	}
	return dir, err
}

// output returns what a command prints.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %v: %w", name, args, err)
	}
	return strings.TrimSpace(string(out)), err
}

// overlayFor writes the file for -overlay.
func overlayFor(work, dir, path, counted string, how substitution) (string, error) {
	changed, err := output(dir, "go", "list", "-f", "{{.Dir}}", how.pkg)
	if err != nil {
		return "", err
	}
	tested, err := output(dir, "go", "list", "-f",
		`{{.Dir}} {{.Name}}{{if .XTestGoFiles}}_test{{end}}`, path)
	if err != nil {
		return "", err
	}
	file := filepath.Join(changed, how.file)
	src, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(src)
	for _, c := range how.changes {
		if n := strings.Count(text, c.after); n != 1 {
			return "", fmt.Errorf("%s has %d times: %s", file, n, c.after)
		}
		text = strings.Replace(text, c.after, c.after+c.insert, 1)
	}
	testDir, name, _ := strings.Cut(tested, " ")
	test := fmt.Sprintf(installer, name, how.imports, counted, how.install)
	return results.Overlay(work, map[string]string{
		file:                                    text,
		filepath.Join(changed, "socknotify.go"): how.hook,
		filepath.Join(testDir, "zz_socknotify_test.go"): test,
	})
}

// judge compares what the tests said with what is known to differ.
func judge(
	known []difference, filtered bool, said map[string]results.Result,
) (passed, all, unexplained int) {
	var failed []string
	for test, r := range said {
		switch {
		case r.Action == "pass":
			passed++
		case r.Action == "fail" && test != "":
			failed = append(failed, test)
		}
	}
	slices.Sort(failed)
	for _, test := range failed {
		below := func(other string) bool { return strings.HasPrefix(other, test+"/") }
		if slices.ContainsFunc(failed, below) {
			continue // a subtest says it
		}
		if i := slices.IndexFunc(known, func(d difference) bool { return d.matches(test) }); i >= 0 {
			fmt.Printf("differs: %s: %s\n", test, known[i].why)
			continue
		}
		unexplained++
		fmt.Printf("differs: %s: NOT EXPLAINED\n%s", test, said[test].Output)
	}
	for _, d := range known {
		if !filtered && !d.sometimes && !slices.ContainsFunc(failed, d.matches) {
			unexplained++
			fmt.Printf("passes, and is in the list of what differs: %s\n", d.test)
		}
	}
	return passed, len(failed), unexplained
}

func (d difference) matches(test string) bool {
	return regexp.MustCompile("^(?:" + d.test + ")$").MatchString(test)
}
