package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fencepost/wire"
)

// The scripts in testdata say what a client sends and a server answers, one token a message: ">Q" sent, "<T" received,
// "<Z:I" ReadyForQuery. After every token the state is printed.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				return fmt.Sprintf("unknown command %q", d.Cmd)
			}
			var tr Tracker
			tr.Reset()
			var out strings.Builder
			for _, tok := range strings.Fields(d.Input) {
				var ok bool
				switch {
				case tok[0] == '>':
					ok = tr.Sent(tok[1])
				case strings.HasPrefix(tok, "<Z:"):
					ok = tr.Ready(tok[3])
				default:
					ok = tr.Received(tok[1])
				}
				fmt.Fprintf(&out, "%-5s %s\n", tok, state(&tr))
				if !ok {
					out.WriteString("refused\n")
					break
				}
			}
			return out.String()
		})
	})
}

func state(t *Tracker) string {
	s := fmt.Sprintf("open=%d status=%c", t.Outstanding(), t.Status())
	for _, f := range []struct {
		name string
		on   bool
	}{{"unsynced", t.unsynced}, {"skipping", t.skipping}, {"copying-in", t.CopyingIn()}, {"pinned", t.Pinned()}, {"idle", t.Idle()}} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

func TestQueueKeepsOrderAcrossSizes(t *testing.T) {
	var q queue
	next, want := 0, 0
	for round := 0; round < 200; round++ {
		for i := 0; i < round%37; i++ {
			q.push(byte(next))
			next++
		}
		for i := 0; i < round%41 && q.n > 0; i++ {
			if got := q.first(); got != byte(want) {
				t.Fatalf("round %d: got %d, want %d", round, got, byte(want))
			}
			if q.last() != byte(next-1) {
				t.Fatalf("round %d: last is %d, want %d", round, q.last(), byte(next-1))
			}
			q.pop()
			want++
		}
	}
}

func BenchmarkSimpleQuery(b *testing.B) {
	var t Tracker
	t.Reset()
	b.ReportAllocs()
	for b.Loop() {
		t.Sent(wire.MsgQuery)
		t.Received(wire.MsgRowDescription)
		t.Received(wire.MsgDataRow)
		t.Received(wire.MsgCommandComplete)
		t.Ready(wire.TxIdle)
		if !t.Idle() {
			b.Fatal("not idle")
		}
	}
}
