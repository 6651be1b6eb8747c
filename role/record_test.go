package role

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const ttl = 3 * time.Second

func writable(asked, answered int) Observation {
	return Observation{Host: "a", Verdict: Writable, SystemID: 1, Timeline: 1, Asked: at(asked), Answered: at(answered)}
}

func saw(v Verdict, asked, answered int) Observation {
	o := writable(asked, answered)
	o.Verdict = v
	return o
}

// TestStrength has one line per rule about what a record is worth.
func TestStrength(t *testing.T) {
	look := func(r *Record, o Observation) { r.Observe(o.Answered, ttl, o) }
	for _, c := range []struct {
		rule string
		at   int // when the strength is asked for
		do   func(*Record)
		want string // strength, then why
	}{
		{"nothing is known of a host that was not asked", 0, func(r *Record) {}, "none: it has not answered yet"},
		{"a host that could not be asked is unknown too", 0, func(r *Record) { r.Fail(at(0), "no route") }, "none: no route"},
		{"a writable answer proves", 20, func(r *Record) { look(r, writable(10, 20)) }, "proven: "},
		{"up to its ttl", 3009, func(r *Record) { look(r, writable(10, 20)) }, "proven: "},
		{"which counts from asking, not from answering", 3010, func(r *Record) { look(r, writable(10, 20)) }, "doubted: it was last seen writable more than 3s ago"},
		{"an answer that is too old when it comes proves nothing", 4000, func(r *Record) { look(r, writable(10, 4000)) }, "doubted: it was last seen writable more than 3s ago"},
		{"an older answer that comes later changes nothing", 3100, func(r *Record) { look(r, writable(200, 300)); look(r, writable(10, 400)) }, "proven: "},
		{"a loss is doubt", 50, func(r *Record) { look(r, writable(10, 20)); r.Lost(at(30), "lost") }, "doubted: lost"},
		{"an answer asked for before the loss does not end it", 50, func(r *Record) { r.Lost(at(30), "lost"); look(r, writable(29, 40)) }, "doubted: lost"},
		{"nor one asked for at the same moment", 50, func(r *Record) { r.Lost(at(30), "lost"); look(r, writable(30, 40)) }, "doubted: lost"},
		{"one asked for after it does", 50, func(r *Record) { r.Lost(at(30), "lost"); look(r, writable(31, 40)) }, "proven: "},
		{"a loss told late, of before the proof, is no doubt", 50, func(r *Record) { look(r, writable(31, 40)); r.Lost(at(30), "lost") }, "proven: "},
		{"a hint is doubt", 50, func(r *Record) { look(r, writable(10, 20)); r.Doubt(at(30), "25006") }, "doubted: 25006"},
		{"the last rise of doubt counts", 50, func(r *Record) {
			r.Doubt(at(10), "one")
			r.Doubt(at(30), "two")
			look(r, writable(20, 40))
		}, "doubted: two"},
		{"recovery demotes", 50, func(r *Record) { look(r, writable(10, 20)); look(r, saw(InRecovery, 30, 40)) }, "demoted: it is in recovery"},
		{"read-only demotes", 50, func(r *Record) { look(r, writable(10, 20)); look(r, saw(ReadOnly, 30, 40)) }, "demoted: it is read-only by its own settings"},
		{"another cluster demotes", 50, func(r *Record) { look(r, writable(10, 20)); r.ObserveForeign(at(40), writable(30, 40)) }, "demoted: it belongs to another cluster, with system identifier 1"},
		{"a refusal right after a loss demotes", 50, func(r *Record) { look(r, writable(10, 20)); r.RefusedAfterLoss(at(40), "refused") }, "demoted: refused"},
		{"demotion ends with a proof asked for after it", 50, func(r *Record) { look(r, saw(InRecovery, 10, 20)); look(r, writable(21, 40)) }, "proven: "},
		{"not with one asked for before it was known", 50, func(r *Record) { look(r, saw(InRecovery, 10, 30)); look(r, writable(21, 40)) }, "demoted: it is in recovery"},
		{"nor with one that is too old when it comes", 4000, func(r *Record) { look(r, saw(InRecovery, 10, 20)); look(r, writable(21, 4000)) }, "demoted: it is in recovery"},
		{"an answer known before the proof was asked for does not demote", 50, func(r *Record) { look(r, writable(30, 40)); look(r, saw(InRecovery, 10, 20)) }, "proven: "},
		{"one that overlaps with it does, whichever came first", 50, func(r *Record) { look(r, writable(30, 40)); look(r, saw(InRecovery, 10, 31)) }, "demoted: it is in recovery"},
		{"doubt does not end a demotion, nor hide it", 50, func(r *Record) { look(r, saw(InRecovery, 10, 20)); r.Doubt(at(30), "x") }, "demoted: it is in recovery"},
		{"an answer without sense is doubt", 50, func(r *Record) { look(r, writable(10, 20)); look(r, saw(Unknown, 30, 40)) }, "doubted: its answer made no sense"},
		{"an answer that cannot be checked is none", 50, func(r *Record) {
			look(r, Observation{Host: "a", Verdict: Writable, Timeline: 1, Asked: at(10), Answered: at(20)})
		}, "none: its answer lacks its system identifier"},
		{"a login never speaks for a host", 50, func(r *Record) { o := writable(10, 20); o.Source = Login; look(r, o) }, "none: it has not answered yet"},
		{"nor does gossip", 50, func(r *Record) { o := writable(10, 20); o.Source = Gossip; look(r, o) }, "none: it has not answered yet"},
		{"a login may speak against it", 50, func(r *Record) {
			look(r, writable(10, 20))
			look(r, Observation{Host: "a", Verdict: InRecovery, Source: Login, Asked: at(30), Answered: at(40)})
		}, "demoted: it is in recovery"},
		{"a fence proves", 50, func(r *Record) { o := writable(10, 20); o.Source = Fence; look(r, o) }, "proven: "},
		{"an answer never counts as known later than now", 50, func(r *Record) {
			r.Observe(at(20), ttl, saw(InRecovery, 10, 1000))
			look(r, writable(21, 40))
		}, "proven: "},
	} {
		var r Record
		c.do(&r)
		if got := fmt.Sprintf("%v: %s", r.Strength(at(c.at), ttl), r.Why(at(c.at), ttl)); got != c.want {
			t.Errorf("%s: %q instead of %q", c.rule, got, c.want)
		}
	}
}

// TestElectable: who is not elected yet needs more than who is.
func TestElectable(t *testing.T) {
	for _, c := range []struct {
		rule string
		at   int
		do   func(*Record)
		want bool
	}{
		{"not without evidence", 30, func(r *Record) {}, false},
		{"proven", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)) }, true},
		{"not when it expired", 3010, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)) }, false},
		{"in doubt by a hint", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)); r.Doubt(at(25), "x") }, true},
		{"in doubt by lateness", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)); r.Late(at(25), ttl) }, true},
		{"not after a loss", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)); r.Lost(at(25), "x") }, false},
		{"not after a failure", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)); r.Fail(at(25), "x") }, false},
		{"not when demoted", 30, func(r *Record) { r.Observe(at(20), ttl, writable(10, 20)); r.RefusedAfterLoss(at(25), "x") }, false},
		{"after a loss, by a later answer", 40, func(r *Record) { r.Lost(at(25), "x"); r.Observe(at(35), ttl, writable(30, 35)) }, true},
	} {
		var r Record
		c.do(&r)
		if got := r.Electable(at(c.at), ttl); got != c.want {
			t.Errorf("%s: %t", c.rule, got)
		}
		if e := r.Expires(at(c.at), ttl); e.IsZero() == c.want || c.want && r.Electable(e, ttl) {
			t.Errorf("%s: expires at %v", c.rule, e)
		}
	}
}

func TestLateOncePerTTL(t *testing.T) {
	var r Record
	var rose []int
	for ms := 0; ms <= 10000; ms += 500 {
		if r.Late(at(ms), ttl) {
			rose = append(rose, ms)
		}
	}
	if want := []int{0, 3000, 6000, 9000}; !slices.Equal(rose, want) {
		t.Errorf("doubt for lateness rose at %v instead of %v", rose, want)
	}
}

func TestFactsOfARecord(t *testing.T) {
	var r Record
	r.Observe(at(20), ttl, writable(10, 20))
	r.Lost(at(30), "lost")
	r.RefusedAfterLoss(at(40), "refused")
	r.RefusedAfterLoss(at(50), "refused again")
	r.Doubt(at(60), "hint")
	f, cause, since := r.Demotion()
	for _, c := range []struct{ what, got, want string }{
		{"demotion", fmt.Sprint(f.Why, " ", cause, " ", since.Equal(at(40)), f.At.Equal(at(50))), "refused again refused after a loss true true"},
		{"doubt", r.Doubts().Why, "hint"},
		{"failure", r.Failure().Why, "refused again"},
		{"lost", fmt.Sprint(r.LostAt().Equal(at(30))), "true"},
		{"heard", fmt.Sprint(r.Heard().Equal(at(20))), "true"},
		{"evidence", fmt.Sprint(r.Evidence() == writable(10, 20), r.Last() == writable(10, 20)), "true true"},
		{"text", r.String(), "last a writable on timeline 1, system identifier 1 (probe); evidence a writable on timeline 1, " +
			"system identifier 1 (probe); demoted: refused again; doubted: hint"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q instead of %q", c.what, c.got, c.want)
		}
	}
}

// TestOrderDoesNotMatter: whatever order the same facts arrive in, the record is worth the same at every later time, as
// long as no answer was too old when it came (which alone depends on when that is).
func TestOrderDoesNotMatter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		type fact struct {
			text  string
			apply func(*Record)
		}
		var facts []fact
		for range 2 + rnd.IntN(6) {
			ms := rnd.IntN(20) * 10
			switch o := saw(Verdict(rnd.IntN(4)), ms, ms+rnd.IntN(5)*10); rnd.IntN(5) {
			case 0:
				facts = append(facts, fact{fmt.Sprint("lost ", ms), func(r *Record) { r.Lost(at(ms), "lost") }})
			case 1:
				facts = append(facts, fact{fmt.Sprint("doubt ", ms), func(r *Record) { r.Doubt(at(ms), "doubt") }})
			case 2:
				facts = append(facts, fact{fmt.Sprint("refused ", ms), func(r *Record) { r.RefusedAfterLoss(at(ms), "refused") }})
			default:
				facts = append(facts, fact{fmt.Sprint(o, o.Asked.Sub(start), o.Answered.Sub(start)), func(r *Record) { r.Observe(at(300), ttl, o) }})
			}
		}
		worth := func() string {
			var r Record
			var text []string
			for _, f := range facts {
				f.apply(&r)
				text = append(text, f.text)
			}
			return fmt.Sprint(r.Strength(at(300), ttl), r.Electable(at(300), ttl), r.Strength(at(5000), ttl)) + "|" + strings.Join(text, "; ")
		}
		first := worth()
		rnd.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
		if second := worth(); strings.Split(first, "|")[0] != strings.Split(second, "|")[0] {
			t.Fatalf("order matters:\n%s\n%s", first, second)
		}
	}
}
