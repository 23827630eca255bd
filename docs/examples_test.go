package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages that programs import.
var public = []string{"", "sock", "server", "park", "debug", "overlapped", "metrics/prometheus", "metrics/otel"}

// plain are methods that need no example: the language or the standard library calls them.
var plain = []string{"Error", "Unwrap", "Is", "String", "MarshalText"}

// spared are those that are for others than programs.
var spared = map[string]string{
	"sock.Held.Ahead":               "for package socknotify",
	"sock.Held.Made":                "for package socknotify",
	"sock.Held.Took":                "for package server",
	"sock.Held.TCP":                 "for package server",
	"prometheus.Collector.Describe": "the registry's",
	"prometheus.Collector.Collect":  "the registry's",
}

// Every exported function has an example of its own, and every exported method is used in one.
func TestEveryExample(t *testing.T) {
	for _, dir := range public {
		t.Run(filepath.Base("x/"+dir), func(t *testing.T) {
			p := parsePackage(t, filepath.Join("..", filepath.FromSlash(dir)))
			for _, f := range p.functions {
				if !slices.ContainsFunc(p.examples, func(e string) bool { return e == f || strings.HasPrefix(e, f+"_") }) {
					t.Errorf("no Example%s", f)
				}
			}
			used := p.uses(t, strings.HasPrefix(dir, "metrics"))
			for _, m := range p.methods {
				name := m[strings.Index(m, ".")+1:]
				if !used[m] && !slices.Contains(plain, name) && spared[p.name+"."+m] == "" {
					t.Errorf("no example uses %s", m)
				}
			}
			if len(p.functions)+len(p.methods) == 0 {
				t.Error("it has nothing at all")
			}
		})
	}
}

// A publicPackage is what there is to show of one, and what shows it.
type publicPackage struct {
	dir, name  string
	fset       *token.FileSet
	functions  []string
	methods    []string // Type.Method
	examples   []string // without Example
	exampleSrc []*ast.File
}

func parsePackage(t *testing.T, dir string) *publicPackage {
	t.Helper()
	p := &publicPackage{dir: dir, fset: token.NewFileSet()}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(p.fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if base := filepath.Base(path); strings.HasSuffix(base, "_test.go") {
			if strings.HasPrefix(base, "example") {
				p.exampleSrc = append(p.exampleSrc, f)
			}
			p.addExamples(f)
			continue
		}
		p.name = f.Name.Name
		p.addDeclarations(f)
	}
	slices.Sort(p.functions)
	p.functions = slices.Compact(p.functions)
	slices.Sort(p.methods)
	p.methods = slices.Compact(p.methods)
	return p
}

func (p *publicPackage) addExamples(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			if name, ok := strings.CutPrefix(fn.Name.Name, "Example"); ok {
				p.examples = append(p.examples, name)
			}
		}
	}
}

func (p *publicPackage) addDeclarations(f *ast.File) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !fn.Name.IsExported() {
			continue
		}
		if fn.Recv == nil {
			p.functions = append(p.functions, fn.Name.Name)
		} else if of := receiver(fn.Recv.List[0].Type); ast.IsExported(of) {
			p.methods = append(p.methods, of+"."+fn.Name.Name)
		}
	}
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// uses are the methods that the example files use. Of a module whose dependencies may not be at hand, any type's
// method of the name counts.
func (p *publicPackage) uses(t *testing.T, byName bool) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	if byName {
		for _, f := range p.exampleSrc {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					for _, m := range p.methods {
						used[m] = used[m] || strings.HasSuffix(m, "."+s.Sel.Name)
					}
				}
				return true
			})
		}
		return used
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	// What is declared in other files of the tests is missed, and does no harm.
	config := types.Config{Importer: exported(t, p.fset, p.dir, p.exampleSrc), Error: func(error) {}}
	config.Check("examples", p.fset, p.exampleSrc, info)
	for _, o := range info.Uses {
		fn, ok := o.(*types.Func)
		if !ok || fn.Pkg() == nil || fn.Pkg().Name() != p.name {
			continue
		}
		if recv := fn.Origin().Signature().Recv(); recv != nil {
			of := recv.Type()
			if ptr, ok := of.(*types.Pointer); ok {
				of = ptr.Elem()
			}
			if named, ok := of.(*types.Named); ok {
				used[named.Obj().Name()+"."+fn.Name()] = true
			}
		}
	}
	return used
}

// exported imports what the go command has compiled of the packages that files import.
func exported(t *testing.T, fset *token.FileSet, dir string, files []*ast.File) types.Importer {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export", "--"}
	for _, f := range files {
		for _, i := range f.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err == nil && !slices.Contains(args, path) {
				args = append(args, path)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failed.String())
	}
	compiled := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var of struct{ ImportPath, Export string }
		if err := d.Decode(&of); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		compiled[of.ImportPath] = of.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, errors.New("not among the dependencies")
		}
		return os.Open(compiled[path])
	})
}
