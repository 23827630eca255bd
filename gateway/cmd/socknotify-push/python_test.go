package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/freeport"
)

// lookPython returns the path of Python, or skips the test.
func lookPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("%s needs Python: %v", t.Name(), err)
	}
	version := exec.CommandContext(t.Context(), python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))")
	if err := version.Run(); err != nil {
		t.Skipf("%s needs Python 3.9 or newer: %v", t.Name(), err)
	}
	return python
}

// The tests of the client for Python pass, in which the gateway is killed and started again.
func TestPython(t *testing.T) {
	python := lookPython(t)
	key := "a secret of 32 bytes, for a test"
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(key), 0o600))
	addr := freeport.Addrs(t, 1)[0]
	args := []string{"--addr", addr, "--name", "one", "--store", t.TempDir(), "--jwt-secret", secret, "--presence", "room.>"}
	_, kill := startProcess(t, args...)
	ready := func() {
		until(t, "the gateway is ready", func() bool {
			code, _ := ask(t, "GET", "http://"+addr+"/readyz", "")
			return code == http.StatusOK
		})
	}
	ready()
	c := exec.CommandContext(t.Context(), python, "-m", "unittest", "discover", "-v", "-s", "tests")
	c.Dir = "../../python"
	c.Env = append(os.Environ(), "PUSH_URL=http://"+addr, "PUSH_SECRET="+key, "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
	var log bytes.Buffer
	c.Stderr = &log
	stdin, err := c.StdinPipe()
	must(t, err)
	stdout, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() != "restart" {
			t.Log(lines.Text())
			continue
		}
		kill()
		_, kill = startProcess(t, args...)
		ready()
		io.WriteString(stdin, "done\n")
	}
	if err := c.Wait(); err != nil || !strings.Contains(log.String(), "\nOK\n") || !strings.Contains(log.String(), "test_restart") {
		t.Errorf("%v: %s", err, log.Bytes())
	}
}

// pip installs the client for Python without a registry, where there is setuptools.
func TestPythonPackage(t *testing.T) {
	lookPython(t)
	// The one on PATH may have no modules beside Debian's, which has them as python3-wheel.
	all := []string{"python3", "/usr/bin/python3"}
	i := slices.IndexFunc(all, func(python string) bool {
		return exec.CommandContext(t.Context(), python, "-c", "import setuptools, wheel, pip").Run() == nil
	})
	if i < 0 {
		t.Skipf("%s needs pip, setuptools and wheel", t.Name())
	}
	python := all[i]
	source, target := t.TempDir(), t.TempDir()
	must(t, os.CopyFS(source, os.DirFS("../../python"))) // setuptools writes there
	c := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
		"--no-build-isolation", "--target", target, source)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c = exec.CommandContext(t.Context(), python, "-c", "import socknotify_push as p; print(p.__file__, p.Client('http://a').publish.__doc__)")
	c.Env = append(os.Environ(), "PYTHONPATH="+target, "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), target) {
		t.Errorf("%v: %s", err, out)
	}
	must1(os.Stat(filepath.Join(target, "socknotify_push", "py.typed")))
}
