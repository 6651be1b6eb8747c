package frontend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/fakepg"
	"fencepost/wire"
)

func TestEffectOfStatements(t *testing.T) {
	for sql, want := range map[string]string{
		"":                               "",
		"  ;; ":                          "",
		"SELECT 1":                       "stays",
		"select ';'":                     "stays commits",
		"SELECT 'x'":                     "stays",
		"SELECT 'x';  \n\t":              "stays",
		"INSERT INTO t VALUES ($1)":      "stays",
		"(SELECT 1)":                     "stays",
		"COMMIT":                         "commits",
		"commit;":                        "commits",
		" \r\n\f\v\tCoMmIt WORK":         "commits",
		"COMMIT/**/":                     "commits",
		"COMMIT--":                       "commits",
		"COMMIT\x00SELECT 1":             "commits",
		"SELECT 1\x00;COMMIT":            "stays",
		"END":                            "commits",
		"end transaction":                "commits",
		"endless":                        "stays",
		"COMMITTED":                      "stays",
		"commité":                        "stays",
		"_commit":                        "stays",
		"PREPARE TRANSACTION 'x'":        "commits",
		"ROLLBACK":                       "ends",
		"Abort":                          "ends",
		"ROLLBACK AND CHAIN":             "ends",
		"ROLLBACK TO s":                  "stays",
		"rollback\nto savepoint s":       "stays",
		"ROLLBACK WORK TO s":             "ends",
		"ROLLBACK; SELECT 1":             "ends stays",
		"SELECT 1; COMMIT":               "stays commits",
		"SELECT 1;;COMMIT; ":             "stays commits",
		"SELECT 'x'; SELECT 1":           "commits",
		"SELECT \"a;b\"; SELECT 1":       "commits",
		"SELECT $$;COMMIT;$$":            "commits",
		"SELECT 1 -- x; y":               "commits",
		"SELECT 1 /* ; */ ":              "commits",
		"-- x\nCOMMIT":                   "commits",
		"/* x */ COMMIT":                 "commits",
		"/* x */ SELECT 1":               "commits",
		"'x'":                            "commits",
		"1":                              "stays",
		"SAVEPOINT s; RELEASE s; BEGIN ": "stays stays stays",
		"COPY t FROM STDIN":              "stays",
		"CALL p()":                       "stays",
	} {
		var got []string
		for text := []byte(sql); ; {
			var e effect
			if e, text = nextEffect(text); e != nothing {
				got = append(got, [...]string{stays: "stays", ends: "ends", commits: "commits"}[e])
			}
			if len(text) == 0 {
				break
			}
		}
		if s := strings.Join(got, " "); s != want && !(want == "stays commits" && s == "commits") {
			t.Errorf("%q: %s, want %s", sql, s, want)
		}
	}
}

func feed(u unanswered, all ...pgproto3.FrontendMessage) unanswered {
	var sc wire.Scanner
	for _, m := range all {
		f, _, err := sc.Next(encode(m))
		if err != nil {
			panic(err)
		}
		u = u.with(&f)
	}
	return u
}

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

// What is on its way in a transaction block, and whether it may commit it, or anything else.
func TestUnansweredInABlock(t *testing.T) {
	parse := func(name, sql string) pgproto3.FrontendMessage { return &pgproto3.Parse{Name: name, Query: sql} }
	bind := func(portal, name string) pgproto3.FrontendMessage {
		return &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name}
	}
	execute := func(portal string) pgproto3.FrontendMessage { return &pgproto3.Execute{Portal: portal} }
	sync, flush := &pgproto3.Sync{}, &pgproto3.Flush{}
	type all = []pgproto3.FrontendMessage
	for _, c := range []struct {
		what string
		sent all
		want bool
	}{
		{"nothing", nil, false},
		{"a statement", all{query("INSERT INTO t VALUES ('x')")}, false},
		{"COMMIT", all{query("COMMIT")}, true},
		{"a statement and COMMIT", all{query("SELECT 1"), query("COMMIT")}, true},
		{"COMMIT and a statement", all{query("COMMIT"), query("SELECT 1")}, true},
		{"both in one", all{query("SELECT 1; COMMIT")}, true},
		{"ROLLBACK", all{query("SELECT 1"), query("ROLLBACK")}, false},
		{"something behind ROLLBACK", all{query("ROLLBACK"), query("INSERT INTO t VALUES (1)")}, true},
		{"both in one", all{query("ROLLBACK; INSERT INTO t VALUES (1)")}, true},
		{"something behind a savepoint's", all{query("ROLLBACK TO s"), query("SELECT 1")}, false},
		{"a function behind ROLLBACK", all{query("ROLLBACK"), &pgproto3.FunctionCall{}}, true},
		{"a function", all{&pgproto3.FunctionCall{}}, false},
		{"COPY", all{query("COPY t FROM STDIN"), &pgproto3.CopyData{Data: []byte("COMMIT")}, &pgproto3.CopyDone{}}, false},
		{"a batch", all{parse("", "INSERT"), bind("", ""), &pgproto3.Describe{ObjectType: wire.ObjectPortal}, execute(""), sync}, false},
		{"two in a batch", all{parse("", "INSERT"), bind("", ""), execute(""), parse("", "SELECT"), bind("", ""), execute(""), sync}, false},
		{"a batch with COMMIT", all{parse("", "INSERT"), bind("", ""), execute(""), parse("", "COMMIT"), bind("", ""), execute(""), sync}, true},
		{"a batch with ROLLBACK", all{parse("", "ROLLBACK"), bind("", ""), execute(""), sync}, false},
		{"a batch with more behind ROLLBACK", all{parse("", "ROLLBACK"), bind("", ""), execute(""), parse("", "INSERT"), bind("", ""), execute("")}, true},
		{"a batch behind ROLLBACK", all{query("ROLLBACK"), parse("", "INSERT"), bind("", ""), execute("")}, true},
		{"a named statement", all{bind("", "s"), execute("")}, true},
		{"only bound", all{bind("", "s")}, false},
		{"a statement parsed before", all{bind("", ""), execute("")}, true},
		{"a statement parsed before a Sync", all{parse("", "SELECT"), sync, bind("", ""), execute("")}, true},
		{"a statement parsed before a Query", all{parse("", "SELECT"), query("SELECT 1"), bind("", ""), execute("")}, true},
		{"a portal bound before", all{execute("")}, true},
		{"a named portal", all{parse("", "SELECT"), bind("", ""), execute("c")}, true},
		{"a named portal bound now", all{parse("", "SELECT"), bind("c", ""), execute("c")}, true},
		{"the unnamed portal of before", all{parse("", "SELECT"), bind("c", ""), execute("")}, true},
		{"the unnamed portal of a named statement", all{parse("", "SELECT"), bind("", ""), bind("", "s"), execute("")}, true},
		{"one parsed for later", all{parse("s", "COMMIT"), flush}, false},
		{"one parsed and closed", all{&pgproto3.Close{ObjectType: wire.ObjectStatement, Name: "s"}, flush, sync}, false},
	} {
		if got := feed(0, c.sent...)&mayCommit != 0; got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	for _, m := range []pgproto3.FrontendMessage{query("SELECT 1"), parse("", "SELECT"), bind("", "s"), execute(""), &pgproto3.FunctionCall{}} {
		b := encode(m)
		var sc wire.Scanner
		f, _, _ := sc.Next(b[:len(b)-1])
		if unanswered(0).with(&f)&mayCommit == 0 {
			t.Errorf("the beginning of a %T is taken for something", m)
		}
	}
	data := encode(&pgproto3.CopyData{Data: []byte("x")})
	var sc wire.Scanner
	if f, _, _ := sc.Next(data[:6]); unanswered(0).with(&f) != 0 {
		t.Error("the beginning of CopyData may commit")
	}
}

// Whatever is sent in a block: if a server commits any of it, that was foreseen at every moment before.
func TestNoCommitIsOverlooked(t *testing.T) {
	committed, foreseen, sequences := 0, 0, 20000
	for seed := range uint64(sequences) {
		r := rand.New(rand.NewPCG(seed, 21))
		var commits bool
		inBlock, ran := true, false
		e := fakepg.NewEngine(func(m pgproto3.BackendMessage) {
			switch m := m.(type) {
			case *pgproto3.CommandComplete:
				tag := string(m.CommandTag)
				commits = commits || tag == "COMMIT"
				ran = ran || !inBlock && tag != "ROLLBACK" && tag != "BEGIN"
				if tag == "ROLLBACK" {
					inBlock = false
				}
			case *pgproto3.ErrorResponse:
				ran = false
			case *pgproto3.ReadyForQuery:
				commits = commits || ran && m.TxStatus == wire.TxIdle
				inBlock, ran = m.TxStatus != wire.TxIdle, false
			}
		})
		// From before: an unnamed statement and a named one that commit, and a portal in the block.
		for _, m := range []pgproto3.FrontendMessage{&pgproto3.Parse{Name: "begin", Query: "BEGIN"}, &pgproto3.Parse{Name: "s", Query: "COMMIT"}, &pgproto3.Parse{Query: "COMMIT"},
			&pgproto3.Bind{PreparedStatement: "begin"}, &pgproto3.Execute{}, &pgproto3.Bind{DestinationPortal: "c", PreparedStatement: "s"}, &pgproto3.Bind{}, &pgproto3.Sync{}} {
			e.Handle(m)
		}
		if e.Status() != wire.TxOpen {
			t.Fatalf("the block has status %c", e.Status())
		}
		commits, inBlock, ran = false, true, false
		var u unanswered
		var sent []string
		for range 1 + r.IntN(4) {
			for _, m := range inBlockSends(r) {
				sent = append(sent, fmt.Sprintf("%T %v", m, m))
				u = feed(u, m)
				e.Handle(m)
				if commits && u&mayCommit == 0 {
					t.Fatalf("seed %d: a server commits\n%s", seed, strings.Join(sent, "\n"))
				}
			}
		}
		if commits {
			committed++
		}
		if u&mayCommit != 0 {
			foreseen++
		}
	}
	if committed < sequences/10 || committed > sequences*9/10 || foreseen > sequences*9/10 {
		t.Errorf("of %d sequences %d commit and %d may: that shows little", sequences, committed, foreseen)
	}
}

func inBlockSends(r *rand.Rand) []pgproto3.FrontendMessage {
	switch r.IntN(8) {
	case 0:
		return []pgproto3.FrontendMessage{&pgproto3.Bind{PreparedStatement: []string{"", "s"}[r.IntN(2)]}}
	case 1:
		return []pgproto3.FrontendMessage{&pgproto3.Execute{Portal: []string{"", "c"}[r.IntN(2)]}}
	case 2, 3:
		return []pgproto3.FrontendMessage{query("SELECT 'x'")}
	}
	return fakepg.Random(r, "x")
}
