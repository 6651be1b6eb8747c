package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

const copyIn = "COPY copied FROM STDIN"

var copyTalk = []struct {
	name string
	talk conversation
}{
	{"in and out, simple", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("1\tone\n2\ttwo\n"), copyData("3\t\\N\n"), copyDone), "C[COPY 3] Z[I]"},
		{script(query("COPY copied TO STDOUT")), "H d[1\tone] d[2\ttwo] d[3\t\\N] c C[COPY 3] Z[I]"},
	}},
	{"everything in one write", conversation{
		{script(query(copyIn), copyData("4\tfour\n"), copyDone, query("SELECT count(*) FROM copied")), "G C[COPY 1] Z[I] T D[4] C[SELECT 1] Z[I]"},
	}},
	{"nothing", conversation{{script(query(copyIn), copyDone), "G C[COPY 0] Z[I]"}}},
	{"aborted by the client", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("5\tfive\n"), copyFail("changed my mind")), "E[57014] Z[I]"},
		{script(query("SELECT count(*) FROM copied")), "T D[4] C[SELECT 1] Z[I]"},
	}},
	{"aborted by the server, with more data on its way", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("6\tsix\nnonsense\n"), copyData("7\tseven\n"), copyData("8\teight\n"), copyDone), "E[22P02] Z[I]"},
		{script(query("SELECT count(*) FROM copied")), "T D[4] C[SELECT 1] Z[I]"},
	}},
	{"aborted by the server in a transaction", conversation{
		{script(query("BEGIN")), "C[BEGIN] Z[T]"},
		{script(query(copyIn)), "G"},
		{script(copyData("nonsense\n"), copyDone, query("SELECT 1"), query("ROLLBACK")), "E[22P02] Z[E] E[25P02] Z[E] C[ROLLBACK] Z[I]"},
	}},
	{"late CopyData, CopyDone and CopyFail are ignored", conversation{
		{script(copyData("x\n"), copyDone, copyFail("x"), query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"},
	}},
	{"Flush and Sync within are ignored", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("9\tnine\n"), flush, copyData("10\tten\n"), copyDone), "C[COPY 2] Z[I]"},
	}},
	{"extended, Sync behind the end", conversation{
		{script(run(copyIn), flush), "1 2 G"},
		{script(copyData("11\televen\n"), copyDone, sync_), "C[COPY 1] Z[I]"},
	}},
	{"extended, Sync behind Execute and again behind the end", conversation{ // 5.09
		{script(run(copyIn), sync_), "1 2 G"},
		{script(copyData("12\ttwelve\n"), copyDone, sync_), "C[COPY 1] Z[I]"},
	}},
	{"extended, aborted by the client", conversation{
		{script(run(copyIn), flush), "1 2 G"},
		{script(copyData("13\tthirteen\n"), copyFail("no")), "E[57014]"},
		{script(run("SELECT 1"), sync_), "Z[I]"},
	}},
	{"extended, aborted by the server", conversation{
		{script(run(copyIn), flush), "1 2 G"},
		{script(copyData("nonsense\n")), "E[22P02]"},
		{script(copyData("14\tfourteen\n"), copyDone, sync_), "Z[I]"},
	}},
	{"extended, out in a pipeline", conversation{
		{script(run("COPY (SELECT 1, 'x') TO STDOUT"), run("SELECT 2"), sync_), "1 2 H d[1\tx] c C[COPY 1] 1 2 D[2] C[SELECT 1] Z[I]"},
	}},
	{"out that fails half-way", conversation{
		{script(query("COPY (SELECT 1/(3-n) FROM generate_series(1, 5) n) TO STDOUT")), "H d[0] d[1] E[22012] Z[I]"},
	}},
	{"two in one query", conversation{
		{script(query("COPY copied FROM STDIN; COPY copied FROM STDIN; SELECT 1")), "G"},
		{script(copyData("20\ta\n"), copyDone), "C[COPY 1] G"},
		{script(copyData("21\tb\n"), copyDone), "C[COPY 1] T D[1] C[SELECT 1] Z[I]"},
	}},
	{"out and in and out in one query", conversation{
		{script(query("COPY (SELECT 1) TO STDOUT; COPY copied FROM STDIN; COPY (SELECT 2) TO STDOUT")), "H d[1] c C[COPY 1] G"},
		{script(copyData("22\tc\n"), copyDone), "C[COPY 1] H d[2] c C[COPY 1] Z[I]"},
	}},
	{"Sync within", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("24\te\n"), sync_, copyData("25\tf\n"), sync_, copyDone), "C[COPY 2] Z[I]"},
		{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"},
	}},
	{"a query in the middle, on which the server gives up", conversation{
		{script(query(copyIn)), "G"},
		{script(copyData("23\td\n"), query("SELECT 1")), "E[08P01] E[08P01] EOF"},
	}},
}

func TestCopy(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run("PostgreSQL "+version, func(t *testing.T) {
			l := newLab(t, version, "default_pool_size = 3")
			l.sql("CREATE TABLE copied (n int, t text)", "GRANT ALL ON copied TO PUBLIC")
			atEach(t, l, func(t *testing.T, at place) {
				l.sql("TRUNCATE copied")
				for _, c := range copyTalk {
					if err := converse(at, c.talk); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				}
			})
			l.atRest()
			l.whole(l.transaction(), 3)
			l.whole(l.session(), 3)
		})
	}
}

// Field case 5.08: the server fails a COPY while the client still sends megabytes.
func TestCopyFailsUnderWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5")
	l.sql("CREATE TABLE once (n int PRIMARY KEY)", "INSERT INTO once VALUES (1)", "GRANT ALL ON once TO PUBLIC")
	l.each(30, func(i int) error {
		c, err := l.transaction().login()
		if err != nil {
			return err
		}
		defer c.close()
		var more []pgproto3.FrontendMessage
		for n := range 100 {
			more = append(more, copyData(strings.Repeat(fmt.Sprintf("%d\n", 100+n), 8<<10)))
		}
		err = c.hold(conversation{
			{script(query("BEGIN")), "C[BEGIN] Z[T]"},
			{script(query("COPY once FROM STDIN")), "G"},
			{script(copyData("1\n1\n"), more, copyDone), "E[23505] Z[E]"},
			{script(query("ROLLBACK")), "C[ROLLBACK] Z[I]"},
			{script(query("SELECT 'usable'")), "T D[usable] C[SELECT 1] Z[I]"},
		})
		return err
	})
	l.atRest()
	l.whole(l.transaction(), 5)
}

// Field case 5.09: rounds of COPY with a Sync too many leave nothing behind.
func TestCopySyncRounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2")
	l.sql("CREATE TABLE copied (n int, t text)", "GRANT ALL ON copied TO PUBLIC")
	for _, at := range []place{l.session(), l.transaction()} {
		for i := range 50 {
			err := converse(at, conversation{
				{script(run(copyIn), sync_), "1 2 G"},
				{script(copyData(fmt.Sprintf("%d\tx\n", i)), copyDone, sync_), "C[COPY 1] Z[I]"},
				{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"},
			})
			if err != nil {
				t.Fatalf("%s, round %d: %v", at.name, i, err)
			}
		}
	}
	if n := l.value("SELECT count(*)::text FROM copied"); n != "100" {
		t.Errorf("%s rows, want 100", n)
	}
	l.atRest()
	l.whole(l.transaction(), 2)
}
