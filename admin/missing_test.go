package admin

import (
	"strings"
	"testing"
	"time"

	"fencepost/cluster"
	"fencepost/pgerr"
)

// What must hold at every member is refused while one is not heard that is not named, and a name that makes no sense is refused, too.
func TestWhoIsMissing(t *testing.T) {
	const alive, left, dead = cluster.Alive, cluster.Left, cluster.Dead
	type run struct {
		name  string
		state cluster.State
	}
	whole := []run{{"a", alive}, {"b", alive}, {"c", alive}}
	torn := []run{{"a", alive}, {"b", alive}, {"c", dead}}
	for _, c := range []struct {
		what    string
		size    int
		runs    []run
		without string
		want    string // the beginning of the error; "" for none
	}{
		{"whole", 3, whole, "", ""},
		{"whole, fleet_size unknown", 1, whole, "", ""},
		{"alone", 1, whole[:1], "", ""},
		{"one is dead", 3, torn, "", "2 of 3 members are heard; not heard: c"},
		{"one is dead, fleet_size unknown", 1, torn, "", "2 of 3 members are heard; not heard: c"},
		{"the dead one is named", 3, torn, "c", ""},
		{"the dead one is named, fleet_size unknown", 1, torn, "c", ""},
		{"another one is named", 3, torn, "d", "2 of 3 members are heard; not heard: c"},
		{"another one is named, fleet_size unknown", 1, torn, "d", "no such member: d"},
		{"one that is alive is named", 3, torn, "b", "member b is alive: it takes part"},
		{"two are missing, one is named", 4, torn, "c", "2 of 4 members are heard; this member does not know the others by name"},
		{"two are missing and named", 4, torn, "c d", ""},
		{"one was never heard", 3, whole[:2], "", "2 of 3 members are heard; this member does not know the others by name"},
		{"one was never heard and is named", 3, whole[:2], "c", ""},
		{"nobody is missing", 3, whole, "d", "no such member: d"},
		{"one has left", 3, []run{{"a", alive}, {"b", alive}, {"c", left}}, "", "2 of 3 members are heard; not heard: c (left)"},
		{"one has left, fleet_size unknown", 1, []run{{"a", alive}, {"b", alive}, {"c", left}}, "", ""},
		{"one has left and is named", 3, []run{{"a", alive}, {"b", alive}, {"c", left}}, "c", ""},
		{"one has another in its place", 3, append([]run{{"z", dead}}, whole...), "", ""},
		{"one runs again", 1, append([]run{{"c", dead}}, whole...), "", ""},
		{"two runs of one are no two members", 3, []run{{"a", alive}, {"b", alive}, {"b", alive}}, "", "2 of 3 members are heard"},
		{"one left once and is dead now", 1, []run{{"a", alive}, {"b", left}, {"b", dead}}, "", "1 of 2 members are heard; not heard: b"},
	} {
		t.Run(c.what, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, _ *process, f *fakeFleet, _ *fakeMember) {
				f.set(func(f *fakeFleet) {
					f.torn, f.description.Size, f.description.Members = true, c.size, nil
					for _, r := range c.runs {
						f.description.Members = append(f.description.Members, cluster.MemberRow{Member: r.name, State: r.state})
					}
				})
				r, err := (&execution{ops: p, ctx: t.Context()}).callRoll()
				without := strings.Fields(c.without)
				got := ""
				if err := firstError(err, r.checkNames(without), r.complete(without)); err != nil {
					got = err.(*pgerr.Error).Message
				}
				if got == "" != (c.want == "") || !strings.HasPrefix(got, c.want) {
					t.Errorf("%q, not %q", got, c.want)
				}
			})
		})
	}
}

// fall has c fall silent, or come back.
func (f *fakeFleet) fall(silent bool) {
	f.set(func(f *fakeFleet) { f.torn, f.description.Size = silent, 3 })
}

// A member that falls silent while writes are paused ends a SWITCHOVER that does not name it, and one that the fleet did not ask keeps it from
// saying that writes are paused.
func TestMemberFallsSilent(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
		row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
		m.script = scripted(&row)
		atRest(p, b)
		f.set(func(f *fakeFleet) { f.members = f.members[:2] })
		o := p.switchOver("SWITCHOVER main")
		time.Sleep(time.Second)
		if got := o.all(); got != "" {
			t.Fatalf("told %q though c was not asked", got)
		}
		f.set(func(f *fakeFleet) { f.members = append(f.members, m) })
		time.Sleep(2 * firstBeats)
		if got := o.all(); got != goNow {
			t.Fatalf("told %q", got)
		}
		f.fall(true)
		time.Sleep(heartbeat)
		if got, want := o.last(), "ERROR 55000 SWITCHOVER of shard main was given up, writes resume\n  2 of 3 members are heard; not heard: c\n  A member that"; !strings.HasPrefix(got, want) {
			t.Error(got)
		}
		if p.shards[0].held() || b.shards[0].held() {
			t.Error("writes wait")
		}
	})
}

func TestSwitchoverWithout(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
		atRest(p, b)
		f.set(func(f *fakeFleet) { f.members = f.members[:2] })
		f.fall(true)
		o := p.switchOver(`SWITCHOVER main 60 WITHOUT "c"`)
		time.Sleep(2 * firstBeats)
		if got, want := o.all(), strings.Replace(goNow, "member:", "member but c:", 1); got != want {
			t.Errorf("told %q", got)
		}
	})
}

// A PAUSE FLEET that is whole only at its beginning is undone.
func TestMemberFallsSilentDuringPause(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fakeFleet, m *fakeMember)
		want   string
	}{
		"silent": {func(f *fakeFleet, _ *fakeMember) { f.fall(true) }, "ERROR 55000 2 of 3 members are heard; not heard: c\n"},
		"comes":  {func(f *fakeFleet, _ *fakeMember) {}, "ERROR 55000 member c has come meanwhile and has not carried it out\n"},
	} {
		t.Run(name, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
				f.set(func(f *fakeFleet) { f.members = f.members[:2] })
				b.lanes[1].set(func(l *fakeLanes) { l.busy = 1 })
				s := p.session("ops")
				s.send("PAUSE FLEET")
				time.Sleep(time.Second)
				c.change(f, m)
				b.lanes[1].set(func(l *fakeLanes) { l.busy = 0 })
				if got := s.answer(); !strings.HasPrefix(got, c.want) {
					t.Error(got)
				}
				for _, of := range []*process{p, b} {
					if at := paused(t, of); at != "no[0 0 0]" {
						t.Errorf("paused: %s", at)
					}
				}
			})
		})
	}
}
