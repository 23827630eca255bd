package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const delayImport = `; import socknotifyDelay "github.com/socknotify/socknotify/internal/test/delay"`

// overlay writes copies of the Go files of some folders into dir, with delays before statements that
// synchronise, and returns the file for go build -overlay. Lines keep their numbers.
func overlay(dir string, packages []string) (string, error) {
	replace := map[string]string{}
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			out, err := delayed(file, src)
			if err != nil {
				return "", err
			}
			if out == nil {
				continue
			}
			to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
			if err := os.WriteFile(to, out, 0o666); err != nil {
				return "", err
			}
			replace[file] = to
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o666)
}

// synchronising are the methods before whose calls a delay is inserted.
var synchronising = []string{
	"Lock", "TryLock", "Unlock", "RLock", "RUnlock", "Load", "Store", "Swap", "CompareAndSwap", "Add", "And", "Or",
	"Wait", "Signal", "Broadcast", "Close", "Process", "Post", "Read", "Write", "Send", "Receive", "Reset", "Stop", "Done",
}

// delayed returns a file with delays, or nil if it has no place for one.
func delayed(name string, src []byte) ([]byte, error) {
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
		if !ok || f.Body == nil || strings.Contains(directives(f), "//go:nosplit") {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				if len(n.List) > 0 && !isClause(n.List[0]) {
					visit(n.List)
				}
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

func directives(f *ast.FuncDecl) string {
	var b strings.Builder
	if f.Doc != nil {
		for _, c := range f.Doc.List {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

func isClause(s ast.Stmt) bool {
	switch s.(type) {
	case *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}

// synchronises reports whether a statement itself, not a block or function inside it, uses a channel,
// starts a goroutine, or calls one of the methods.
func synchronises(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt:
		return true
	case *ast.DeferStmt, *ast.DeclStmt:
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
