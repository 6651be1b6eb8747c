// Package fencepost_test checks what a machine can check about the shape of the code: who imports whom, what the pure
// packages may not touch, and the few names that belong to one package alone.
package fencepost_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module     = "fencepost"
	protoactor = "github.com/asynkron/protoactor-go/"
	maxLines   = 600
)

// source is one parsed file of the module.
type source struct {
	name string // from the module's root, with slashes
	text string
	fset *token.FileSet
	ast  *ast.File
}

func (s source) dir() string  { return path.Dir(s.name) }
func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// support reports whether the file is there for tests only.
func (s source) support() bool {
	return s.isTest() || strings.HasPrefix(s.name, "internal/") || strings.HasPrefix(s.name, "soak/")
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

// imports returns each import path with the name it has in the file.
func (s source) imports() map[string]string {
	m := make(map[string]string)
	for _, imp := range s.ast.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		name := path.Base(p)
		if imp.Name != nil {
			name = imp.Name.Name
		}
		m[p] = name
	}
	return m
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{name, text, fset, f}
}

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
		if d.IsDir() && (hidden || slices.Contains([]string{"testdata", "bin", "out"}, d.Name())) {
			return fs.SkipDir
		}
		if d.IsDir() || hidden || filepath.Ext(name) != ".go" {
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all = append(all, parse(t, filepath.ToSlash(name), string(b)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rules look at one file each and say what is wrong with it.
var rules = map[string]func(source) []string{
	"imports": checkImports, "purity": checkPurity, "actors": checkActors, "sqlstates": checkSQLSTATEs,
	"size": checkSize, "message types": checkMessageTypes,
}

func TestRules(t *testing.T) {
	all := sources(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, s := range all {
				for _, problem := range rule(s) {
					t.Error(problem)
				}
			}
		})
	}
}

var (
	impureImports = regexp.MustCompile(`^(net|os|io/ioutil|math/rand|crypto/rand|sync|log|runtime|syscall|context|fencepost/eventloop|` +
		`github\.com/rs/zerolog|github\.com/asynkron/protoactor-go|golang\.org/x/sys)(/|$)`)
	clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
)

func checkPurity(s source) (problems []string) {
	if s.isTest() || !slices.Contains(pure, s.dir()) {
		return nil
	}
	imports := s.imports()
	for _, p := range sortedKeys(imports) {
		if p != "net/netip" && impureImports.MatchString(p) { // netip: addresses as values
			problems = append(problems, fmt.Sprintf("%s: a pure package imports %s", s.name, p))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			problems = append(problems, fmt.Sprintf("%s: goroutine or channel in a pure package", s.at(n)))
		case *ast.SelectorExpr:
			if isPackage(n.X, imports["time"]) && slices.Contains(clock, n.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s: a pure package asks the clock (time.%s)", s.at(n), n.Sel.Name))
			}
		}
		return true
	})
	return problems
}

// checkActors keeps to the part of protoactor that is used here: its parts with queues, timers or addresses of their own
// would get around the event loops.
func checkActors(s source) (problems []string) {
	imports := s.imports()
	for _, p := range sortedKeys(imports) {
		if sub, ok := strings.CutPrefix(p, protoactor); ok && sub != "actor" && sub != "eventstream" {
			problems = append(problems, fmt.Sprintf("%s imports protoactor's %s; only actor and eventstream are used", s.name, sub))
		}
	}
	if imports[protoactor+"actor"] == "" {
		return problems
	}
	banned := []string{"SetReceiveTimeout", "ReceiveTimeout", "Stash", "BoundedDropping", "DeveloperSupervisionLogging", "MetricsProvider"}
	ours := map[ast.Expr]bool{} // Conn.Stash takes bytes, protoactor's takes nothing
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if n, ok := n.(*ast.CallExpr); ok && len(n.Args) > 0 {
			ours[n.Fun] = true
		}
		if n, ok := n.(*ast.SelectorExpr); ok && slices.Contains(banned, n.Sel.Name) && !(n.Sel.Name == "Stash" && ours[n]) {
			problems = append(problems, fmt.Sprintf("%s: protoactor's %s is not used", s.at(n), n.Sel.Name))
		}
		return true
	})
	return problems
}

// sqlstate matches the codes of PostgreSQL's error classes (manual, appendix A), not every five letters.
var sqlstate = regexp.MustCompile(`^(0[012389ABFLPZ]|2[0-8BDF]|3[489BDF]|4[024]|5[34578]|72|F0|HV|P0|XX)[0-9A-Z]{3}$`)

func checkSQLSTATEs(s source) (problems []string) {
	if s.support() || s.dir() == "pgerr" {
		return nil
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if n, ok := n.(*ast.BasicLit); ok && n.Kind == token.STRING {
			if text, err := strconv.Unquote(n.Value); err == nil && sqlstate.MatchString(text) && strings.ContainsAny(text, "0123456789") {
				problems = append(problems, fmt.Sprintf("%s: SQLSTATE %s outside pgerr", s.at(n), text))
			}
		}
		return true
	})
	return problems
}

// checkMessageTypes: where messages of the protocol are handled, bytes have names (wire/messages.go). A letter or digit is
// left as such where it is text, which is compared by order.
func checkMessageTypes(s source) (problems []string) {
	if s.isTest() || !regexp.MustCompile(`^(actors/(frontend|backend|lane|monitor)|supervisor|internal/fakepg)(/|$)`).MatchString(s.dir()) {
		return nil
	}
	text := map[ast.Expr]bool{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op != token.EQL && n.Op != token.NEQ {
				text[n.X], text[n.Y] = true, true
			}
		case *ast.BasicLit:
			if n.Kind == token.CHAR && !text[n] && regexp.MustCompile(`^'[A-Za-z0-9]'$`).MatchString(n.Value) {
				problems = append(problems, fmt.Sprintf("%s: %s has a name in wire", s.at(n), n.Value))
			}
		}
		return true
	})
	return problems
}

func checkSize(s source) []string {
	if n := strings.Count(s.text, "\n"); n > maxLines {
		return []string{fmt.Sprintf("%s has %d lines, more than %d", s.name, n, maxLines)}
	}
	return nil
}

func isPackage(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && name != "" && id.Name == name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// The rules themselves must be able to fail: each of these breaks one of them.
func TestRulesSeeOffences(t *testing.T) {
	for _, c := range []struct{ rule, name, text string }{
		{"imports", "wire/x.go", `package wire; import "fencepost/auth"`},
		{"imports", "wire/x.go", `package wire; import "fencepost/eventloop"`},
		{"imports", "wire/x.go", `package wire; import "fencepost/internal/pgcluster"`},
		{"imports", "soak/x.go", `package soak; import "fencepost/wire"`},
		{"imports", "somewhere/x.go", `package somewhere`},
		{"purity", "role/x.go", `package role; import "os"`},
		{"purity", "role/x.go", `package role; import "math/rand/v2"`},
		{"purity", "role/x.go", `package role; import clock "time"; var x = clock.Now()`},
		{"purity", "role/x.go", `package role; func f() { go f() }`},
		{"actors", "admin/x.go", `package admin; import "github.com/asynkron/protoactor-go/remote"`},
		{"actors", "admin/x.go", `package admin; import "github.com/asynkron/protoactor-go/actor"; func f(c actor.Context) { c.Stash() }`},
		{"sqlstates", "wire/x.go", "package wire; const x = `57P01`"},
		{"message types", "actors/lane/x.go", "package lane; func f(t byte) bool { return t == 'Q' }"},
		{"message types", "actors/lane/x.go", "package lane; func f(t byte) { switch t { case 'Q': } }"},
		{"size", "wire/x.go", "package wire" + strings.Repeat("\n", maxLines+1)},
	} {
		if problems := rules[c.rule](parse(t, c.name, c.text)); len(problems) != 1 {
			t.Errorf("%s found %d problems instead of 1 in %s: %.120s\n%s", c.rule, len(problems), c.name, c.text, strings.Join(problems, "\n"))
		}
	}
}

// Whoever reads an actor's messages.go has read all that it accepts and emits. A message is what a type switch over
// ctx.Message(), or over a parameter of type any, has a case for, what Send is given, and what asks for silence as a dead
// letter.
func TestMessagesAreInOneFile(t *testing.T) {
	packages := make(map[string][]source)
	for _, s := range sources(t) {
		if !s.support() {
			packages[s.dir()] = append(packages[s.dir()], s)
		}
	}
	for _, files := range packages {
		for _, problem := range strayMessages(files) {
			t.Error(problem)
		}
	}
	if offence := strayMessages([]source{
		parse(t, "x/actor.go", `package x; import "github.com/asynkron/protoactor-go/actor"; type ask struct{}; func f(c actor.Context) { switch c.Message().(type) { case *ask: } }`),
		parse(t, "x/other.go", `package x; type tell struct{}; func g(c actor.Context) { c.Send(nil, &tell{}) }`),
	}); len(offence) != 2 {
		t.Errorf("2 messages outside of messages.go were found as %q", offence)
	}
}

// strayMessages are the messages of an actor's package that are declared outside of messages.go.
func strayMessages(files []source) (problems []string) {
	actors := slices.ContainsFunc(files, func(s source) bool { return s.imports()[protoactor+"actor"] != "" })
	if !actors {
		return nil
	}
	messages := make(map[string]bool)
	for _, s := range files {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "IgnoreDeadLetterLogging" {
					messages[typeName(n.Recv.List[0].Type)] = true
				}
			case *ast.TypeSwitchStmt:
				if overMessage(n) {
					for _, c := range n.Body.List {
						for _, e := range c.(*ast.CaseClause).List {
							messages[typeName(e)] = true
						}
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Send" && len(n.Args) == 2 {
					arg := n.Args[1]
					if u, ok := arg.(*ast.UnaryExpr); ok {
						arg = u.X
					}
					if c, ok := arg.(*ast.CompositeLit); ok {
						messages[typeName(c.Type)] = true
					}
				}
			}
			return true
		})
	}
	for _, s := range files {
		if path.Base(s.name) == "messages.go" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if n, ok := n.(*ast.TypeSpec); ok && messages[n.Name.Name] {
				problems = append(problems, fmt.Sprintf("%s: message %s is not in messages.go", s.at(n), n.Name.Name))
			}
			return true
		})
	}
	return problems
}

// overMessage reports whether a type switch is over a call of Message, or over something called a message.
func overMessage(n *ast.TypeSwitchStmt) bool {
	var over ast.Expr
	switch a := n.Assign.(type) {
	case *ast.AssignStmt:
		over = a.Rhs[0].(*ast.TypeAssertExpr).X
	case *ast.ExprStmt:
		over = a.X.(*ast.TypeAssertExpr).X
	}
	switch x := over.(type) {
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Message"
	case *ast.Ident:
		return x.Name == "message" || x.Name == "msg"
	}
	return false
}

// typeName is the name of a type of the same package, or of a pointer to one; "" for any other.
func typeName(e ast.Expr) string {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// maxMethods is what a type may have without a line in methods.
const maxMethods = 40

// methods are the types with more methods than that, and why. A number that goes up needs its reason here.
var methods = map[string]struct {
	most int
	why  string
}{
	"actors/backend.Backend":        {56, "a server connection: login, identity, fences, idle watch, cleaning, cancels, answers that are edited"},
	"actors/frontend.Frontend":      {66, "a client session; its parts have yet to be taken out"},
	"actors/lane.Lane":              {60, "one method for each message, and what ties host pools, logins and checkouts together"},
	"actors/lane/pool.Machine":      {46, "one method for each thing that can happen to a pool"},
	"actors/shard.decider":          {50, "one method for each message of lanes, monitors, fleet and console"},
	"actors/shard/election.Machine": {60, "one method for each event and each rule"},
	"cluster.fleet":                 {65, "its operations between members have yet to be taken out"},
	"eventloop.loop":                {51, "the loop's interface to connections, timers and mailboxes"},
}

func TestTypesAreNotTooBig(t *testing.T) {
	count := make(map[string]int)
	for _, s := range sources(t) {
		if s.support() {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				count[s.dir()+"."+typeName(f.Recv.List[0].Type)]++
			}
		}
	}
	for _, name := range sortedKeys(count) {
		most := maxMethods
		if m, ok := methods[name]; ok {
			most = m.most
		}
		if count[name] > most {
			t.Errorf("%s has %d methods, more than %d", name, count[name], most)
		}
	}
	for _, name := range sortedKeys(methods) {
		if count[name] <= maxMethods {
			t.Errorf("%s has %d methods: it needs no exception", name, count[name])
		}
	}
}

func TestPackageDocs(t *testing.T) {
	documented := make(map[string]bool)
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		doc := s.ast.Doc.Text()
		ok := strings.HasPrefix(doc, "Package "+s.ast.Name.Name+" ")
		if s.ast.Name.Name == "main" {
			ok = strings.HasPrefix(doc, "Command "+path.Base(s.dir())+" ")
		}
		documented[s.dir()] = documented[s.dir()] || ok
		if slices.Contains([]string{"util", "utils", "common", "helpers", "base", "types"}, s.ast.Name.Name) {
			t.Errorf("%s: %s says nothing about what is in the package", s.name, s.ast.Name.Name)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no comment that begins with \"Package NAME \" or \"Command NAME \"", dir)
		}
	}
}

// A state machine whose steps depend on the order of a map gives different effects for the same events.
func TestPurePackagesRangeOverNoMap(t *testing.T) {
	files := make(map[string][]*ast.File)
	fset := token.NewFileSet()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, s := range sources(t) {
		if s.isTest() || !slices.Contains(pure, s.dir()) {
			continue
		}
		f, err := parser.ParseFile(fset, s.name, s.text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if files[s.dir()] == nil {
			args = append(args, "./"+s.dir())
		}
		files[s.dir()] = append(files[s.dir()], f)
	}
	if len(files) == 0 {
		t.Fatal("no pure package found")
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		p, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[p] = file
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(p string) (io.ReadCloser, error) { return os.Open(exports[p]) })}
	for dir, pkg := range files {
		info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
		if _, err := conf.Check(module+"/"+dir, fset, pkg, info); err != nil {
			t.Fatal(err)
		}
		for _, f := range pkg {
			ast.Inspect(f, func(n ast.Node) bool {
				if n, ok := n.(*ast.RangeStmt); ok {
					if _, ok := info.TypeOf(n.X).Underlying().(*types.Map); ok {
						t.Errorf("%s: range over a map in a pure package; range over its sorted keys", fset.Position(n.Pos()))
					}
				}
				return true
			})
		}
	}
}

// Nothing that is linked into a program brings in protoactor's networking.
func TestLinkedActorPackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, p := range strings.Fields(string(out)) {
		sub, ok := strings.CutPrefix(p, protoactor)
		if part, _, _ := strings.Cut(sub, "/"); ok && slices.Contains([]string{"remote", "cluster", "router", "scheduler", "persistence"}, part) {
			t.Errorf("%s is linked in", p)
		}
	}
}

// Every module that is required directly has a line in the decision record.
func TestDependenciesAreDecided(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile("docs/decisions/0001-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		if !strings.Contains(string(record), "`"+m[1]+"`") {
			t.Errorf("%s is required but not in docs/decisions/0001-dependencies.md", m[1])
		}
	}
}
