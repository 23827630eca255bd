package words

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keys has the keys of log lines. The first row is of all servers. A key of another row says what
// no key of the first one does.
var keys = strings.Fields(`remote err panic stack name retry_in
	suppressed limit type remedy local tls conn
	stream what routes address authorization clients events backup
	listener handler age calls worker shard running socket pid`)

// calls has the methods that log, and the place of the first key among their arguments.
var calls = map[string]int{
	"Log": 2, "log": 2, "logLimited": 3, "Panic": 1,
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
}

// Keys fails for a key in the log calls of a folder's Go files that is not in the vocabulary.
func Keys(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", folder, err, len(files))
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, fault := range keyFaults(t, name, nil) {
			t.Error(fault)
		}
	}
}

// keyFaults returns the keys in a file that are not in the vocabulary, with their places. A source
// that is not nil is the text of the file.
func keyFaults(t *testing.T, name string, source any) (faults []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := calls[method.Sel.Name]
		if ok && isLog(call, from) {
			for i := from; i+1 < len(call.Args); i += 2 {
				if key, ok := text(call.Args[i]); ok && !slices.Contains(keys, key) {
					faults = append(faults, fmt.Sprintf("%s: the key %q is not in the vocabulary",
						files.Position(call.Args[i].Pos()), key))
				}
			}
		}
		return true
	})
	return faults
}

// isLog reports whether a call may log: it has a key, and is none of http.Error.
func isLog(call *ast.CallExpr, from int) bool {
	of, ok := call.Fun.(*ast.SelectorExpr).X.(*ast.Ident)
	if ok && of.Name == "http" || len(call.Args) < from+2 {
		return false
	}
	_, key := text(call.Args[from])
	return key
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
