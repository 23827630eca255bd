package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/internal/test/results"
)

const delayImport = `; import socknotifyDelay "github.com/socknotify/socknotify/internal/test/delay"`

// delays writes copies of the Go files of this module and of two others into dir, with delays
// before statements that synchronise, and returns the file for go build -overlay. Lines keep their
// numbers.
func delays(dir string) (string, error) {
	cmd := exec.Command("go", "list", "-f", "{{.Dir}}/*.go", "./...", "./gateway", "./park/http2")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	texts := map[string]string{}
	for pattern := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(pattern, "/delay/*.go") {
			continue
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			text, err := delayed(file)
			if err != nil {
				return "", err
			}
			if text != nil {
				texts[file] = string(text)
			}
		}
	}
	return results.Overlay(dir, texts)
}

// synchronising are the methods before whose calls a delay is inserted.
var synchronising = []string{
	"Lock", "TryLock", "Unlock", "RLock", "RUnlock", "Load", "Store", "Swap", "CompareAndSwap", "Add", "And", "Or",
	"Wait", "Signal", "Broadcast", "Close", "Process", "Post", "Read", "Write", "Send", "Receive", "Reset", "Stop", "Done",
}

// delayed returns a file with delays, or nil if it has no place for one.
func delayed(name string) ([]byte, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var at []int // offsets
	visit := func(list []ast.Stmt) {
		for _, stmt := range list {
			if synchronises(stmt) {
				at = append(at, files.Position(stmt.Pos()).Offset)
			}
		}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		nosplit := func(c *ast.Comment) bool { return c.Text == "//go:nosplit" }
		if f.Doc != nil && slices.ContainsFunc(f.Doc.List, nosplit) {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				visit(n.List)
			case *ast.CaseClause:
				visit(n.Body)
			case *ast.CommClause:
				visit(n.Body)
			}
			return true
		})
	}
	if len(at) == 0 {
		return nil, nil
	}
	slices.Sort(at)
	out := slices.Clone(src)
	for _, offset := range slices.Backward(at) {
		out = slices.Insert(out, offset, []byte("socknotifyDelay.Point(); ")...)
	}
	return slices.Insert(out, files.Position(file.Name.End()).Offset, []byte(delayImport)...), nil
}

// synchronises reports whether a statement itself, not a block or function inside it, uses a channel,
// starts a goroutine, or calls one of the methods.
func synchronises(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt:
		return true
	case *ast.DeferStmt, *ast.DeclStmt, *ast.CaseClause, *ast.CommClause:
		return false
	}
	found := false
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.FuncLit:
			return false
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				found = found || slices.Contains(synchronising, s.Sel.Name)
			}
		}
		return true
	})
	return found
}
