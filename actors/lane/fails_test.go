package lane

import (
	"testing"
	"time"

	"fencepost/actors/lane/pool"
	"fencepost/eventloop"
	"fencepost/internal/fakepg"
)

// fuse is a loop on which a lane fails in the middle of what it does: when it looks at the clock for the nth time.
type fuse struct {
	eventloop.Loop
	lane  *Lane
	left  int
	blows func()
}

func (f *fuse) Now() time.Time {
	if f.lane.ctx != nil && !f.lane.stopped && f.left > 0 {
		if f.left--; f.left == 0 {
			f.blows()
			panic("the fuse has blown")
		}
	}
	return f.Loop.Now()
}

// newFuse is called on the lane's loop. The lane that is made after the failure has none.
func newFuse(l *Lane, n int, blows func()) { l.loop = &fuse{l.loop, l, n, blows} }

// Wherever a lane fails, with whatever in its hand: each checkout, and each login, is answered once.
func TestLaneFailsAnywhere(t *testing.T) {
	n, blown := 0, true
	for ; blown && !t.Failed(); n++ {
		blown = false
		inRoles(t, 1, func(r *roles) {
			r.spec = r.newSpec(2)
			r.spec.WaitLimit = 700 * time.Millisecond
			other, held := r.holding(ReadWrite)
			p, release := r.fencing()
			all := append(r.waits(ReadWrite, 2), p, r.with(Any))
			newcomer := r.newProbe(0, key)
			newcomer.target = Standby // what standbys report nobody knows yet
			r.on(0, func() { newFuse(r.lane(p), n+1, func() { blown = true }) })

			sick := primary(1)
			sick.Trouble = &fakepg.Error{Severity: "ERROR", Code: "XX000", Message: "broken"}
			r.hosts[hostA].server.SetIdentity(sick)
			other.give(held, pool.Clean)
			release()
			newcomer.attach()
			all[3].ask()
			r.sleep(200 * time.Millisecond)
			r.hosts[hostA].server.SetIdentity(primary(1))
			r.sleep(200 * time.Millisecond)
			r.promote(hostB)
			if got := len(newcomer.attached) + len(newcomer.refused); got != 1 {
				t.Fatalf("failed at look %d: the login was answered %d times", n+1, got)
			}
			if len(newcomer.attached) == 1 {
				newcomer.lane = get(r.rig, newcomer.attached).Lane
				newcomer.ask()
				all = append(all, newcomer)
			}
			r.sleep(2 * r.spec.WaitLimit)
			for i, p := range all {
				if got := len(p.granted) + len(p.denied); got != 1 {
					t.Errorf("failed at look %d: client %d was answered %d times", n+1, i, got)
				}
			}
			if row := r.row(0, key); row.Waiting != 0 {
				t.Errorf("failed at look %d: %d wait", n+1, row.Waiting)
			}
		})
	}
	if t.Logf("the lane looked at the clock %d times", n-1); n < 50 {
		t.Error("too little happened")
	}
}
