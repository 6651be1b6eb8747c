package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Two clients on one server connection have statements of the same name, and unnamed ones, of their own.
func TestStatementsBelongToTheirClient(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "default_pool_size = 1")
	for _, mode := range []string{"transaction", "statement"} {
		for _, name := range []string{"", "s1"} {
			t.Run(fmt.Sprintf("%s mode, statement %q", mode, name), func(t *testing.T) {
				a, b := mustLogin(t, l.mode(mode)), mustLogin(t, l.mode(mode))
				for _, c := range []struct {
					*raw
					own string
				}{{a, "1"}, {b, "2"}} {
					got, err := c.exchange(1, parse(name, "SELECT "+c.own), sync_)
					check(t, "Parse", got, err, "1 Z[I]")
				}
				for range 3 {
					got, err := a.exchange(1, bind("", name), execute("", 0), sync_)
					check(t, "the first client", got, err, "2 D[1] C[SELECT 1] Z[I]")
					got, err = b.exchange(1, describeStatement(name), bind("", name), execute("", 0), sync_)
					check(t, "the second client", got, err, "t T 2 D[2] C[SELECT 1] Z[I]")
				}
			})
		}
	}
	t.Run("one that has none gets none", func(t *testing.T) {
		a, b := mustLogin(t, l.transaction()), mustLogin(t, l.transaction())
		got, err := a.exchange(1, parse("s2", "SELECT 1"), parse("", "SELECT 1"), sync_)
		check(t, "Parse", got, err, "1 1 Z[I]")
		for _, m := range []pgproto3.FrontendMessage{bind("", "s2"), describeStatement("s2"), bind("", ""), describeStatement("")} {
			got, err = b.exchange(1, m, sync_)
			check(t, fmt.Sprintf("%T", m), got, err, "E[26000] Z[I]")
		}
		got, err = a.exchange(1, query("PREPARE p AS SELECT 1"))
		check(t, "PREPARE", got, err, "C[PREPARE] Z[I]")
		got, err = b.exchange(1, query("EXECUTE p"))
		check(t, "EXECUTE", got, err, "E[26000] Z[I]")
	})
}

// With max_prepared_statements = 0 a statement lasts as long as its transaction.
func TestStatementsAreNotKept(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "default_pool_size = 1", "max_prepared_statements = 0")
	a, b := mustLogin(t, l.transaction()), mustLogin(t, l.transaction())
	for range 2 {
		for _, c := range []*raw{a, b} {
			got, err := c.exchange(1, parse("s1", "SELECT 1"), bind("", "s1"), execute("", 0), sync_)
			check(t, "in one transaction", got, err, "1 2 D[1] C[SELECT 1] Z[I]")
			got, err = c.exchange(1, bind("", "s1"), execute("", 0), sync_)
			check(t, "in the next", got, err, "E[26000] Z[I]")
		}
	}
}

// What PostgreSQL says about statements it says through Fencepost.
var statementConversations = []struct {
	name string
	talk conversation
}{
	{"a name is taken until it is closed", conversation{
		{script(parse("a", "SELECT 1"), sync_), "1 Z[I]"},
		{script(parse("a", "SELECT 2"), sync_), "E[42P05] Z[I]"},
		{script(parse("a", "SELEC"), sync_), "E[42601] Z[I]"},
		{script(closeStatement("a"), parse("a", "SELECT 2"), bind("", "a"), execute("", 0), sync_), "3 1 2 D[2] C[SELECT 1] Z[I]"},
		{script(closeStatement("a"), closeStatement("nothing"), sync_), "3 3 Z[I]"},
		{script(bind("", "a"), sync_), "E[26000] Z[I]"},
	}},
	{"a Parse that fails leaves nothing", conversation{
		{script(parse("b", "SELEC"), bind("", "b"), sync_), "E[42601] Z[I]"},
		{script(bind("", "b"), sync_), "E[26000] Z[I]"},
		{script(parse("b", "SELECT 1/0"), sync_, parse("b", "SELECT 3"), sync_), "1 Z[I] E[42P05] Z[I]"},
		{script(divide, parse("c", "SELECT 1"), sync_, parse("c", "SELECT 4"), bind("", "c"), execute("", 0), sync_), "1 2 E[22012] Z[I] 1 2 D[4] C[SELECT 1] Z[I]"},
		{script(divide, closeStatement("c"), sync_, bind("", "c"), execute("", 0), sync_), "1 2 E[22012] Z[I] 2 D[4] C[SELECT 1] Z[I]"},
	}},
	{"in a failed block", conversation{
		{script(parse("d", "SELECT 1"), sync_, query("BEGIN"), query("SELECT 1/0")), "1 Z[I] C[BEGIN] Z[T] E[22012] Z[E]"},
		{script(parse("e", "SELECT 1"), sync_, closeStatement("d"), parse("d", "SELECT 1"), sync_), "E[25P02] Z[E] 3 E[25P02] Z[E]"},
		{script(parse("r", "ROLLBACK"), bind("", "r"), execute("", 0), sync_), "1 2 C[ROLLBACK] Z[I]"},
		{script(bind("", "d"), sync_), "E[26000] Z[I]"},
	}},
	{"the unnamed statement", conversation{
		{script(parse("", "SELECT 5"), sync_, bind("", ""), execute("", 0), sync_), "1 Z[I] 2 D[5] C[SELECT 1] Z[I]"},
		{script(divide, parse("", "SELECT 6"), sync_), "1 2 E[22012] Z[I]"},
		{script(parse("", "SELECT 5"), sync_), "1 Z[I]"},
		{script(bind("", "nothing"), parse("", "SELECT 6"), sync_), "E[26000] Z[I]"},
		{script(bind("", ""), execute("", 0), sync_), "2 D[5] C[SELECT 1] Z[I]"},
		{script(parse("", "SELEC"), sync_, bind("", ""), sync_), "E[42601] Z[I] E[26000] Z[I]"},
		{script(parse("", "SELECT 5"), query("SELECT 1"), bind("", ""), sync_), "1 T D[1] C[SELECT 1] Z[I] E[26000] Z[I]"},
		{script(parse("", "SELECT 5"), closeStatement(""), bind("", ""), sync_), "1 3 E[26000] Z[I]"},
	}},
	{"all are dropped", conversation{
		{script(parse("f", "SELECT 1"), sync_, query("DEALLOCATE ALL")), "1 Z[I] C[DEALLOCATE ALL] Z[I]"},
		{script(bind("", "f"), sync_), "E[26000] Z[I]"},
		{script(parse("f", "SELECT 1"), bind("", "f"), execute("", 0), sync_), "1 2 D[1] C[SELECT 1] Z[I]"},
		{script(query("DISCARD ALL")), "C[DISCARD ALL] Z[I]"},
		{script(bind("", "f"), sync_), "E[26000] Z[I]"},
	}},
	{"a portal of the same name is another thing", conversation{ // 3.10
		{script(parse("x", "SELECT 1"), bind("x", "x"), closePortal("x"), sync_, bind("", "x"), execute("", 0), sync_), "1 2 3 Z[I] 2 D[1] C[SELECT 1] Z[I]"},
	}},
	{"describe first, over Flush", conversation{ // 3.08
		{script(parse("g", "SELECT $1::int"), describeStatement("g"), flush), "1 t T"},
		{script(bind("", "g", "7"), execute("", 0), sync_), "2 D[7] C[SELECT 1] Z[I]"},
	}},
	{"a table that changes", conversation{
		{script(query("CREATE TABLE changing (a int); INSERT INTO changing VALUES (1)"), parse("h", "SELECT * FROM changing"), sync_), "C[CREATE TABLE] C[INSERT 0 1] Z[I] 1 Z[I]"},
		{script(bind("", "h"), execute("", 0), sync_), "2 D[1] C[SELECT 1] Z[I]"},
		{script(query("ALTER TABLE changing ADD b int DEFAULT 2")), "C[ALTER TABLE] Z[I]"},
		{script(bind("", "h"), execute("", 0), sync_), "E[0A000] Z[I]"},
		{script(closeStatement("h"), parse("h", "SELECT * FROM changing"), bind("", "h"), execute("", 0), sync_), "3 1 2 D[1|2] C[SELECT 1] Z[I]"},
		{script(query("DROP TABLE changing")), "C[DROP TABLE] Z[I]"},
	}},
	{"malformed", conversation{
		{script(describeStatement(strings.Repeat("n", 9000)), sync_), "E[26000] Z[I]"},
		{script(parse(strings.Repeat("n", 9000), "SELECT 1"), sync_), "1 Z[I]"},
		{script(bind("", strings.Repeat("n", 9000)), execute("", 0), sync_), "2 D[1] C[SELECT 1] Z[I]"},
	}},
}

func TestStatementConversations(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "default_pool_size = 2")
	for _, tc := range statementConversations {
		t.Run(tc.name, func(t *testing.T) {
			atEach(t, l, func(t *testing.T, at place) {
				if err := mustLogin(t, at).hold(tc.talk); err != nil {
					t.Error(err)
				}
			})
		})
	}
	l.atRest()
}

// A batch uses more statements than the server keeps, and long ones.
func TestManyStatements(t *testing.T) { // 3.12
	t.Parallel()
	l := newLab(t, "", "default_pool_size = 1", "max_prepared_statements = 10")
	c := mustLogin(t, l.transaction())
	var msgs []pgproto3.FrontendMessage
	for i := range 1000 {
		msgs = append(msgs, parse(fmt.Sprintf("a%d", i), fmt.Sprintf("SELECT %d", i)))
	}
	for _, i := range []int{0, 500, 999} {
		msgs = append(msgs, bind("", fmt.Sprintf("a%d", i)), execute("", 0))
	}
	got, err := c.exchange(1, append(msgs, sync_)...)
	check(t, "one batch", got, err, strings.Repeat("1 ", 1000)+"2 D[0] C[SELECT 1] 2 D[500] C[SELECT 1] 2 D[999] C[SELECT 1] Z[I]")
	if n, err := c.query("SELECT count(*) FROM pg_prepared_statements"); err != nil || n != "10" {
		t.Errorf("the server has %s statements, want 10; %v", n, err)
	}
	long := "SELECT length('" + strings.Repeat("x", 10_000_000) + "')"
	for _, name := range []string{"long", ""} {
		got, err = c.exchange(1, parse(name, long), bind("", name), execute("", 0), sync_)
		check(t, "a text of 10 MB", got, err, "1 2 D[10000000] C[SELECT 1] Z[I]")
	}
	got, err = c.exchange(1, parse("long2", long), sync_)
	check(t, "more than a client may have", got, err, "E[54000] Z[I]")
}

// statementTexts are what random pipelines parse. All have one parameter at most; 8 makes rows of changing width.
var statementTexts = []string{"SELECT 1", "SELECT 2", "SELECT $1::text", "SELECT 1/(random()*0)::int", "SELEC", "", "SELECT 'three' WHERE $1 = 'x'",
	"BEGIN", "COMMIT", "ROLLBACK", "SELECT generate_series(1, 3)"}

// randomPipeline is one write of a client: batches, some with errors, each with a Sync or a Query at its end.
func randomPipeline(r *rand.Rand, client string) (msgs []pgproto3.FrontendMessage, ready int) {
	names := []string{"", "", "a", "b", "c"}
	pick := func() string { return names[r.IntN(len(names))] }
	text := func() string {
		s := statementTexts[r.IntN(len(statementTexts))]
		if strings.HasPrefix(s, "SELECT") {
			s += " /* " + client + " */"
		}
		return strings.Replace(s, "SELECT 1 ", "SELECT '"+client+"' ", 1)
	}
	for range 1 + r.IntN(3) {
		for range r.IntN(6) {
			name := pick()
			switch r.IntN(12) {
			case 0, 1, 2:
				msgs = append(msgs, parse(name, text()))
			case 3, 4, 5:
				msgs = append(msgs, bind("", name), execute("", uint32(r.IntN(2)*2)))
			case 6:
				msgs = append(msgs, bind("", name, "x"), describePortal(""), execute("", 0))
			case 7:
				msgs = append(msgs, describeStatement(name))
			case 8:
				msgs = append(msgs, closeStatement(name))
			case 9:
				msgs = append(msgs, flush)
			case 10:
				msgs = append(msgs, parse(name, text()), bind("", name), execute("", 0))
			case 11:
				msgs = append(msgs, closeStatement(name), parse(name, text()))
			}
		}
		if r.IntN(6) == 0 {
			msgs, ready = append(msgs, sync_, query([]string{"SELECT 3", "BEGIN", "ROLLBACK", "DEALLOCATE ALL"}[r.IntN(4)])), ready+2
			continue
		}
		msgs, ready = append(msgs, sync_), ready+1
	}
	return msgs, ready
}

// Random pipelines of 12 clients on 3 server connections get the answers that they get from PostgreSQL itself.
// FENCEPOST_PIPELINES is the number of pipelines of each client; without it, as many as fit in 20 seconds.
func TestRandomPipelines(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "default_pool_size = 3")
	end, most := time.Now().Add(20*time.Second), 1<<30
	if n, err := strconv.Atoi(os.Getenv("FENCEPOST_PIPELINES")); err == nil {
		end, most = time.Now().Add(time.Hour), n
	}
	seed := uint64(time.Now().UnixNano())
	var counts, apart [12]int
	l.each(12, func(i int) error {
		p := &pair{l: l, r: rand.New(rand.NewPCG(seed, uint64(i))), client: fmt.Sprint("client ", i)}
		defer p.close()
		for ; counts[i] < most && time.Now().Before(end); counts[i]++ {
			known, err := p.pipeline(counts[i]%20 == 19)
			if err != nil {
				return fmt.Errorf("seed %d, pipeline %d: %w", seed, counts[i], err)
			}
			if known {
				apart[i]++
			}
		}
		return nil
	})
	t.Log(counts, "pipelines,", apart, "ended by the known difference")
}

// pair is a client that does everything twice: at the server itself and through Fencepost.
type pair struct {
	l               *lab
	r               *rand.Rand
	client          string
	direct, through *raw
	status          string // the server's last word before the pipeline
	log             []string
}

func (p *pair) close() {
	if p.direct != nil {
		p.direct.close()
		p.through.close()
	}
	p.direct, p.through, p.status, p.log = nil, nil, "", nil
}

// pipeline compares the answers to one pipeline. known: they differ as they may, and the next one begins on new connections.
func (p *pair) pipeline(last bool) (known bool, err error) {
	if p.direct == nil {
		if p.direct, err = p.l.direct().login(); err != nil {
			return false, err
		}
		if p.through, err = p.l.transaction().login(); err != nil {
			return false, err
		}
	}
	msgs, ready := randomPipeline(p.r, p.client)
	if last { // what stays in a transaction would keep its server connection for ever
		msgs, ready = append(msgs, sync_, query("ROLLBACK")), ready+2
	}
	want, err := p.direct.exchange(ready, msgs...)
	if err != nil {
		return false, err
	}
	got, err := p.through.exchange(ready, msgs...)
	before := p.status
	p.status = want[strings.LastIndex(want, " ")+1:]
	p.log = append(p.log, strings.Join(describe(msgs), " ")+"\n  -> "+want)
	switch {
	case err == nil && got == want:
		return false, nil
	case err == nil && refusedInBlock(got, want, before):
		p.close()
		return true, nil
	}
	return false, fmt.Errorf("got %s, %w; want %s; after\n%s", got, err, want, strings.Join(p.log[max(0, len(p.log)-4):], "\n"))
}

// refusedInBlock reports whether the first difference between two traces is the known one: in a failed block PostgreSQL looks
// at the statement of a Bind or Describe before it refuses it, while one that the server connection has not parsed yet is
// refused (25P02) at once.
func refusedInBlock(got, want, status string) bool {
	g, w := strings.Split(got, " "), strings.Split(want, " ")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return g[i] == "E[25P02]" && status == "Z[E]"
		}
		if strings.HasPrefix(w[i], "Z[") {
			status = w[i]
		}
	}
	return false
}

func describe(msgs []pgproto3.FrontendMessage) (out []string) {
	for _, m := range msgs {
		switch m := m.(type) {
		case *pgproto3.Parse:
			out = append(out, fmt.Sprintf("P(%s %q)", m.Name, m.Query))
		case *pgproto3.Bind:
			out = append(out, fmt.Sprintf("B(%s %d)", m.PreparedStatement, len(m.Parameters)))
		case *pgproto3.Describe:
			out = append(out, fmt.Sprintf("D(%c %s)", m.ObjectType, m.Name))
		case *pgproto3.Close:
			out = append(out, fmt.Sprintf("C(%c %s)", m.ObjectType, m.Name))
		case *pgproto3.Query:
			out = append(out, fmt.Sprintf("Q(%s)", m.String))
		case *pgproto3.Sync:
			out = append(out, "S")
		case *pgproto3.Flush:
			out = append(out, "H")
		case *pgproto3.Execute:
			out = append(out, fmt.Sprintf("E(%d)", m.MaxRows))
		}
	}
	return out
}
