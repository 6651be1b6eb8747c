package fencepost_test

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// A test that sleeps in real time is slow, and wrong on a slow machine: time.Sleep stands in a synctest bubble, or in what
// nothing but bubbles leads to.
func TestSleepsAreInBubbles(t *testing.T) {
	packages := make(map[string][]source)
	for _, s := range sources(t) {
		if s.isTest() {
			packages[s.dir()] = append(packages[s.dir()], s)
		}
	}
	for _, files := range packages {
		for _, problem := range sleepsOutside(files) {
			t.Error(problem)
		}
	}
}

// bubbles is what the test files of one package show of what runs in a bubble. It goes by names: "f" is a function, ".f"
// every method f, "T{}" a type. Where it cannot tell it says outside.
type bubbles struct {
	run  map[string]bool    // functions that hand a function they are given to a bubble
	uses map[string][]place // of functions and methods; of a type: where values of it are made
	only map[string]bool    // … that have uses, all of them in bubbles
}

// place is where something stands: what is around it and itself, the file first.
type place struct {
	file source
	path []ast.Node
}

func sleepsOutside(files []source) (problems []string) {
	b := bubbles{map[string]bool{}, map[string][]place{}, map[string]bool{}}
	var sleeps []place
	for _, s := range files {
		sleeps = append(sleeps, b.read(s)...)
	}
	for b.findRunners(files) {
	}
	for b.dropOthers() {
	}
	for _, p := range sleeps {
		if !b.inside(p) {
			problems = append(problems, fmt.Sprintf("%s: time.Sleep outside of a synctest bubble", p.file.at(p.path[len(p.path)-1])))
		}
	}
	return problems
}

// read notes what a file declares and uses, and returns where it sleeps.
func (b *bubbles) read(s source) (sleeps []place) {
	clock := s.imports()["time"]
	ast.PreorderStack(s.ast, nil, func(n ast.Node, around []ast.Node) bool {
		p := place{s, append(slices.Clone(around), n)}
		use := func(key string) { b.uses[key] = append(b.uses[key], p) }
		switch n := n.(type) {
		case *ast.FuncDecl:
			b.only[funcKey(n)] = true
		case *ast.TypeSpec:
			b.only[n.Name.Name+"{}"] = true
		case *ast.CompositeLit:
			use(typeKey(n.Type))
		case *ast.ValueSpec:
			use(typeKey(n.Type))
		case *ast.Field: // of a struct, which holds a value; a parameter's are looked at in vain
			use(typeKey(n.Type))
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "new" {
				use(typeKey(n.Args[0]))
			}
		case *ast.SelectorExpr:
			if isPackage(n.X, clock) && n.Sel.Name == "Sleep" {
				sleeps = append(sleeps, p)
			}
			use("." + n.Sel.Name)
		case *ast.Ident:
			if !isName(around[len(around)-1], n) {
				use(n.Name)
			}
		}
		return true
	})
	return sleeps
}

// findRunners looks for functions that hand on what they are given to a bubble, as the rigs do; false: there is no other.
func (b *bubbles) findRunners(files []source) (found bool) {
	for _, s := range files {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !b.run[funcKey(f)] && b.handsOn(s, f) {
				b.run[funcKey(f)], found = true, true
			}
		}
	}
	return found
}

func (b *bubbles) handsOn(s source, f *ast.FuncDecl) (found bool) {
	given := map[string]bool{}
	for _, p := range f.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			for _, name := range p.Names {
				given[name.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && b.runs(s, call) {
			for _, arg := range call.Args {
				ast.Inspect(arg, func(n ast.Node) bool {
					id, ok := n.(*ast.Ident)
					found = found || ok && given[id.Name]
					return true
				})
			}
		}
		return true
	})
	return found
}

// runs reports whether a call runs what it is given in a bubble.
func (b *bubbles) runs(s source, call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return b.run[f.Name]
	case *ast.SelectorExpr:
		return isPackage(f.X, s.imports()["testing/synctest"]) && f.Sel.Name == "Test" || b.run["."+f.Sel.Name]
	}
	return false
}

// dropOthers drops what has another use from only; false: nothing has.
func (b *bubbles) dropOthers() (dropped bool) {
	for key := range b.only {
		if len(b.uses[key]) == 0 || slices.ContainsFunc(b.uses[key], func(p place) bool { return !b.inside(p) }) {
			delete(b.only, key)
			dropped = true
		}
	}
	return dropped
}

// inside reports whether a place is in a bubble: in a function that is handed to one, that nothing else leads to, or that
// is given something which is made in bubbles alone.
func (b *bubbles) inside(p place) bool {
	for i, n := range slices.Backward(p.path) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return b.only[funcKey(n)] || b.given(n.Recv) || b.given(n.Type.Params)
		case *ast.FuncLit:
			if b.given(n.Type.Params) {
				return true
			}
		case *ast.Ident, *ast.SelectorExpr:
		default:
			continue
		}
		if call, ok := p.path[i-1].(*ast.CallExpr); ok && n != call.Fun && b.runs(p.file, call) {
			return true
		}
	}
	return false
}

func (b *bubbles) given(fields *ast.FieldList) bool {
	return fields != nil && slices.ContainsFunc(fields.List, func(f *ast.Field) bool {
		star, ok := f.Type.(*ast.StarExpr)
		return ok && b.only[typeKey(star.X)]
	})
}

// isName reports whether an identifier names something instead of using it; what is behind a dot is looked at with the dot.
func isName(parent ast.Node, id *ast.Ident) bool {
	switch n := parent.(type) {
	case *ast.FuncDecl:
		return n.Name == id
	case *ast.SelectorExpr:
		return n.Sel == id
	case *ast.Field:
		return slices.Contains(n.Names, id)
	case *ast.KeyValueExpr:
		return n.Key == id
	}
	return false
}

func funcKey(f *ast.FuncDecl) string {
	if f.Recv != nil {
		return "." + f.Name.Name
	}
	return f.Name.Name
}

// typeKey is the key of a type of the package, or of what a slice or an array holds.
func typeKey(e ast.Expr) string {
	if list, ok := e.(*ast.ArrayType); ok {
		e = list.Elt
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name + "{}"
	}
	return ""
}

func TestSleepsOutsideAreSeen(t *testing.T) {
	const rig = `package wire
		import ("testing"; "testing/synctest"; "time")
		type rig struct{}
		func bubble(t *testing.T, f func(*rig)) { synctest.Test(t, func(t *testing.T) { r := newRig(); f(r); time.Sleep(1) }) }
		func twice(t *testing.T, f func(*rig)) { bubble(t, func(r *rig) { f(r); f(r) }) }
		func newRig() *rig { return &rig{} }
		func (r *rig) pass() { time.Sleep(1) }
		func (r *rig) Write(b []byte) { time.Sleep(1) }
		func pass() { time.Sleep(1) }
		func nap() { pass() }
		func TestRig(t *testing.T) { twice(t, func(r *rig) { nap(); r.pass(); time.Sleep(1) }); twice(t, whole) }
		func whole(r *rig) { go func() { time.Sleep(1) }() }
		`
	for _, c := range []struct {
		text string
		want int
	}{
		{"", 0},
		{`func TestX(t *testing.T) { time.Sleep(1) }`, 1},
		{`func TestX(t *testing.T) { f := func() { time.Sleep(1) }; f() }`, 1},
		{`func TestX(t *testing.T) { t.Run("", func(t *testing.T) { twice(t, whole); time.Sleep(1) }) }`, 1},
		{`func TestX(t *testing.T) { f := time.Sleep; f(1) }`, 1},
		{`func TestX(t *testing.T) { pass() }`, 1},
		{`func TestX(t *testing.T) { go nap() }`, 1},
		{`func TestX(t *testing.T) { f := nap; f() }`, 1},
		{`func TestX(t *testing.T) { bubble(t, late()) }; func late() func(*rig) { time.Sleep(1); return whole }`, 1},
		{`func TestX(t *testing.T) { newRig() }`, 1}, // Write: who calls it is not seen
		{`func TestX(t *testing.T) { var r rig; r.pass() }`, 2},
		{`func TestX(t *testing.T) { r := new(rig); r.pass() }`, 2},
		{`type two struct{ rig }; func TestX(t *testing.T) { (&two{}).pass() }`, 2},
		{`func never() { time.Sleep(1) }`, 1},
	} {
		if problems := sleepsOutside([]source{parse(t, "wire/x_test.go", rig+c.text)}); len(problems) != c.want {
			t.Errorf("%d problems instead of %d with %s: %v", len(problems), c.want, c.text, problems)
		}
	}
}
