package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// A conversation is a list of writes, each answered with what is wanted before the next one is sent.
type conversation []turn

type turn struct {
	send []pgproto3.FrontendMessage // in one write
	want string
}

// hold runs a conversation on a session. It stops at the first message that is not the wanted one.
func (c *raw) hold(talk conversation) error {
	for i, tn := range talk {
		if err := c.send(tn.send...); err != nil {
			return err
		}
		if err := c.expect(tn.want); err != nil {
			return fmt.Errorf("turn %d: %w", i, err)
		}
	}
	return nil
}

// expect reads exactly the messages of a trace.
func (c *raw) expect(want string) error {
	var got []string
	rest := want
	for rest != "" {
		m, err := c.next()
		note := "EOF"
		switch {
		case err == nil && (m.typ == wire.MsgParameterStatus || m.typ == wire.MsgBackendKeyData):
			continue
		case err == nil:
			note = c.note(m)
		case !gone(err):
			return fmt.Errorf("after %s: %w; want %s", short(strings.Join(got, " ")), err, short(want))
		}
		got = append(got, note)
		after, ok := strings.CutPrefix(rest, note)
		if !ok || after != "" && after[0] != ' ' {
			return fmt.Errorf("\n got %s …\nwant %s", short(strings.Join(got, " ")), short(want))
		}
		rest = strings.TrimPrefix(after, " ")
	}
	return nil
}

// atEach runs a test against the server itself and through Fencepost in session and in transaction mode. What holds for
// the server holds for Fencepost.
func atEach(t *testing.T, l *lab, test func(t *testing.T, at place)) {
	for _, at := range []place{l.direct(), l.session(), l.transaction()} {
		t.Run(at.name, func(t *testing.T) { test(t, at) })
	}
}

// divide fails when it is executed, not earlier.
var divide = run("SELECT 1/(random() * 0)::int")

// The numbers are those of the field cases, where there is one.
var conversations = []struct {
	name string
	talk conversation
}{
	{"an error in a pipeline skips up to its Sync", conversation{ // 3.06
		{script(run("SELECT 1"), divide, run("INSERT INTO pipelined VALUES (1)"), sync_, run("SELECT 2"), sync_),
			"1 2 D[1] C[SELECT 1] 1 2 E[22012] Z[I] 1 2 D[2] C[SELECT 1] Z[I]"},
		{script(query("SELECT count(*) FROM pipelined")), "T D[0] C[SELECT 1] Z[I]"},
	}},
	{"a Query between error and Sync is skipped", conversation{ // 3.07
		{script(divide, query("SELECT 1"), sync_), "1 2 E[22012] Z[I]"},
		{script(query("SELECT 2")), "T D[2] C[SELECT 1] Z[I]"},
	}},
	{"a Query behind an error that is known is skipped, too", conversation{
		{script(divide, flush), "1 2 E[22012]"},
		{script(query("SELECT 1"), run("SELECT 1"), query("SELECT 1")), ""},
		{script(sync_, query("SELECT 2")), "Z[I] T D[2] C[SELECT 1] Z[I]"},
		{script(query("SELECT 3")), "T D[3] C[SELECT 1] Z[I]"},
	}},
	{"describe first, with Flush", conversation{ // 3.08
		{script(parse("", "SELECT $1::int + 1"), describeStatement(""), flush), "1 t T"},
		{script(bind("", "", "41"), execute("", 0), sync_), "2 D[42] C[SELECT 1] Z[I]"},
	}},
	{"a portal in slices", conversation{ // 3.09
		{script(parse("", "SELECT generate_series(1, 5)"), bind("", ""), execute("", 2), flush), "1 2 D[1] D[2] s"},
		{script(execute("", 2), flush), "D[3] D[4] s"},
		{script(execute("", 0), sync_), "D[5] C[SELECT 1] Z[I]"},
	}},
	{"an error comes before the Sync", conversation{ // 3.15
		{script(parse("", "SELEC 1")), "E[42601]"},
		{script(sync_), "Z[I]"},
	}},
	{"Query and extended messages mixed in one write", conversation{ // 5.16
		{script(query("SET work_mem = '5MB'"), parse("", "SELECT 7"), describeStatement(""), bind("", ""), execute("", 0), sync_, query("SELECT 1; ; SELECT 2"), query("")),
			"C[SET] Z[I] 1 t T 2 D[7] C[SELECT 1] Z[I] T D[1] C[SELECT 1] T D[2] C[SELECT 1] Z[I] I Z[I]"},
	}},
	{"empty queries", conversation{
		{script(query("")), "I Z[I]"}, {script(query(" ; ;")), "I Z[I]"}, {script(query("-- nothing")), "I Z[I]"},
		{script(run(""), sync_), "1 2 I Z[I]"},
	}},
	{"many statements in one query", conversation{
		{script(query("SELECT 1; SELECT 'a', NULL; SELECT 1/0; SELECT 3")), "T D[1] C[SELECT 1] T D[a|NULL] C[SELECT 1] E[22012] Z[I]"},
		{script(query("BEGIN; SELECT 1; COMMIT; SELECT 2; BEGIN")), "C[BEGIN] T D[1] C[SELECT 1] C[COMMIT] T D[2] C[SELECT 1] C[BEGIN] Z[T]"},
		{script(query("ROLLBACK")), "C[ROLLBACK] Z[I]"},
	}},
	{"a transaction over simple and extended protocol", conversation{
		{script(query("BEGIN")), "C[BEGIN] Z[T]"},
		{script(parse("s", "SELECT 1"), sync_), "1 Z[T]"},
		{script(bind("p", "s"), describePortal("p"), execute("p", 0), closePortal("p"), closeStatement("s"), sync_), "2 T D[1] C[SELECT 1] 3 3 Z[T]"},
		{script(divide, sync_), "1 2 E[22012] Z[E]"},
		{script(query("SELECT 1")), "E[25P02] Z[E]"},
		{script(run("SELECT 1"), sync_), "E[25P02] Z[E]"},
		{script(query("COMMIT")), "C[ROLLBACK] Z[I]"},
	}},
	{"Sync alone, Flush alone, Close of nothing", conversation{
		{script(sync_), "Z[I]"}, {script(flush, sync_, sync_), "Z[I] Z[I]"},
		{script(closeStatement("nothing"), closePortal("nothing"), sync_), "3 3 Z[I]"},
	}},
	{"function call", conversation{ // int4pl
		{script(&pgproto3.FunctionCall{Function: 177, Arguments: [][]byte{{0, 0, 0, 40}, {0, 0, 0, 2}}, ArgFormatCodes: []uint16{1}, ResultFormatCode: 0}), "V[\x00\x00\x00\x0242] Z[I]"},
		{script(&pgproto3.FunctionCall{Function: 154, Arguments: [][]byte{{0, 0, 0, 1}, {0, 0, 0, 0}}, ArgFormatCodes: []uint16{1}}), "E[22012] Z[I]"},
	}},
	{"notices", conversation{
		{script(query("DO $$ BEGIN RAISE NOTICE 'one'; RAISE WARNING 'two'; END $$")), "N[one] N[two] C[DO] Z[I]"},
		{script(run("DROP TABLE IF EXISTS nothing"), sync_), `1 2 N[table "nothing" does not exist, skipping] C[DROP TABLE] Z[I]`},
	}},
	{"errors of several kinds", conversation{
		{script(query("SELECT nothing")), "E[42703] Z[I]"}, {script(bind("", "nothing"), sync_), "E[26000] Z[I]"},
		{script(execute("nothing", 0), sync_), "E[34000] Z[I]"}, {script(describeStatement("nothing"), sync_), "E[26000] Z[I]"},
		{script(parse("", "SELECT $1::int"), bind("", "", "x"), sync_), "1 E[22P02] Z[I]"},
	}},
	{"extended BEGIN and COMMIT in one batch", conversation{
		{script(run("BEGIN"), run("SELECT 1"), run("COMMIT"), sync_), "1 2 C[BEGIN] 1 2 D[1] C[SELECT 1] 1 2 C[COMMIT] Z[I]"},
		{script(run("BEGIN"), sync_, run("SELECT 1"), sync_, run("COMMIT"), sync_), "1 2 C[BEGIN] Z[T] 1 2 D[1] C[SELECT 1] Z[T] 1 2 C[COMMIT] Z[I]"},
	}},
}

func TestConversations(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run("PostgreSQL "+version, func(t *testing.T) {
			l := newLab(t, version, "default_pool_size = 3")
			l.sql("CREATE TABLE pipelined (n int)", "GRANT ALL ON pipelined TO PUBLIC")
			atEach(t, l, func(t *testing.T, at place) {
				for _, c := range conversations {
					if err := converse(at, c.talk); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				}
			})
			l.atRest()
		})
	}
}

func converse(at place, talk conversation) error {
	c, err := at.login()
	if err != nil {
		return err
	}
	defer c.close()
	return c.hold(talk)
}

// All conversations at the same time on a pool that is much smaller: nobody gets another's answer.
func TestConversationsTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 3")
	l.sql("CREATE TABLE pipelined (n int)", "GRANT ALL ON pipelined TO PUBLIC")
	l.each(3*len(conversations), func(i int) error {
		c := conversations[i%len(conversations)]
		for range 10 {
			if err := converse(l.transaction(), c.talk); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
	l.atRest()
	l.whole(l.transaction(), 3)
}

// Field case 3.10: names of statements and of portals are different things.
func TestClosePortalKeepsStatement(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	for _, at := range []place{l.direct(), l.session(), l.transaction()} {
		err := converse(at, conversation{
			{script(parse("x", "SELECT 10"), sync_), "1 Z[I]"},
			{script(bind("x", "x"), closePortal("x"), sync_), "2 3 Z[I]"},
			{script(bind("", "x"), execute("", 0), sync_), "2 D[10] C[SELECT 1] Z[I]"},
			{script(closeStatement("x"), bind("", "x"), sync_), "3 E[26000] Z[I]"},
		})
		if err != nil {
			t.Errorf("%s: %v", at.name, err)
		}
	}
}

// Field case 5.16 with many clients: every Query and every Sync has its ReadyForQuery, in order.
func TestMixedProtocolsUnderLoad(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 4")
	l.each(20, func(i int) error {
		c, err := l.transaction().login()
		if err != nil {
			return err
		}
		defer c.close()
		for round := range 50 {
			tag := fmt.Sprintf("%d.%d", i, round)
			err := c.hold(conversation{{
				script(query("SET work_mem = '5MB'"), parse("", "SELECT $1::text"), describeStatement(""), bind("", "", tag), execute("", 0), sync_,
					query("SELECT '"+tag+"'; ; SELECT 2"), query("")),
				"C[SET] Z[I] 1 t T 2 D[" + tag + "] C[SELECT 1] Z[I] T D[" + tag + "] C[SELECT 1] T D[2] C[SELECT 1] Z[I] I Z[I]"}})
			if err != nil {
				return err
			}
		}
		return nil
	})
	l.atRest()
}

// A pipeline of thousands of messages in one write, read only afterwards.
func TestDeepPipeline(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	const n = 5000
	var send []pgproto3.FrontendMessage
	var want []string
	for i := range n {
		send = append(send, run("SELECT $1::int", fmt.Sprint(i))...)
		want = append(want, fmt.Sprintf("1 2 D[%d] C[SELECT 1]", i))
		if i%10 == 9 {
			send, want = append(send, sync_), append(want, "Z[I]")
		}
	}
	atEach(t, l, func(t *testing.T, at place) {
		c := mustLogin(t, at)
		got, err := c.exchange(n/10, send...)
		check(t, "answers", got, err, strings.Join(want, " "))
	})
}
