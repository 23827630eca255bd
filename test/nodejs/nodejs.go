// Package nodejs runs scripts with Node.js in tests.
package nodejs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A Node runs scripts that may use the module ws.
type Node struct {
	t    *testing.T
	path string
}

// WithWS skips the test without Node.js, or without the module ws, which Debian has as node-ws.
func WithWS(t *testing.T) Node {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s needs Node.js: %v", t.Name(), err)
	}
	n := Node{t, path}
	if _, err := n.Run("require('ws')"); err != nil {
		t.Skipf("%s needs the module ws of Node.js", t.Name())
	}
	return n
}

// Run runs a script, and returns what it has printed.
func (n Node) Run(script string, args ...string) (string, error) {
	file := filepath.Join(n.t.TempDir(), "script.cjs")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(n.t.Context(), n.path, append([]string{file}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+os.Getenv("NODE_PATH")+":/usr/share/nodejs")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
