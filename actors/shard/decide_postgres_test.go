package shard_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/actortest"
	"fencepost/internal/pgcluster"
	"fencepost/role"
)

// onServers runs the actor of a shard with real monitors.
func onServers(t *testing.T, s shard.Settings) *shard.Shard {
	system := actortest.NewSystem()
	sh := shard.NewShard("main")
	pid := system.Root.Spawn(shard.ActorProps(shard.ActorConfig{Shard: sh, Settings: s, Observer: "boot", Log: zerolog.Nop()}))
	t.Cleanup(func() {
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return sh
}

// eventually waits until the view is as wanted, and returns how long that took.
func eventually(t *testing.T, sh *shard.Shard, what string, limit time.Duration, ok func(*shard.View) bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok(sh.View()) {
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v: %+v", what, limit, sh.View())
		}
		<-time.After(time.Millisecond)
	}
	return time.Since(start)
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A disk that hangs holds the first election up, and nothing else: what comes meanwhile is kept.
func TestShardStateFileHangs(t *testing.T) {
	s := settings(hostA)
	s.StateFile = filepath.Join(t.TempDir(), "state.json")
	do(t, syscall.Mkfifo(s.StateFile, 0o600)) // to open it takes until somebody writes
	system := actortest.NewSystem()
	defer system.Shutdown()
	sh := shard.NewShard("main")
	pid := system.Root.Spawn(shard.ActorProps(shard.ActorConfig{Shard: sh, Settings: s, Log: zerolog.Nop(),
		Monitor: func(monitor.Config) *actor.Props { return actor.PropsFromFunc(func(actor.Context) {}) }}))
	sh.RaiseDoubt(time.Now())
	reply := make(chan shard.Row, 1)
	for _, m := range []any{&shard.Connected{Host: hostA, At: time.Now()}, &shard.HostLost{Host: hostA, Doubts: true, At: time.Now()}, &shard.DescribeShard{Reply: reply}} {
		system.Root.Send(pid, m)
	}
	select {
	case r := <-reply:
		t.Fatalf("an answer before the state file was read: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	if _, doubted := sh.InDoubt(); !doubted {
		t.Error("the doubt was settled before anybody had looked at it")
	}
	do(t, os.WriteFile(s.StateFile, []byte(`{"system_identifier":"7700","generation":3,"timeline":9}`), 0o600))
	r := <-reply
	if _, doubted := sh.InDoubt(); doubted || r.Floor != (role.Floor{SystemID: 7700, Generation: 3, Timeline: 9}) || r.View.Floor != 9 {
		t.Errorf("in doubt: %t, row: %+v", doubted, r)
	}
	do(t, system.Root.StopFuture(pid).Wait())
}

// The view follows a switchover, a crash and a demotion of real servers, without a lane's help.
func TestShardFollowsServers(t *testing.T) {
	ctx := t.Context()
	c := pgcluster.New(t, pgcluster.Options{Standbys: 1, Auth: "scram-sha-256", Roles: []pgcluster.Role{{Name: "watcher", Password: "secret"}}})
	first, second := c.Primary(), c.Standbys()[0]
	s := settings(second.Addr(), first.Addr())
	sh := onServers(t, s)
	settled := func(primary *pgcluster.Node, standbys ...*pgcluster.Node) func(v *shard.View) bool {
		return func(v *shard.View) bool {
			return v.Elected == primary.Addr() && v.State == health.Healthy && len(v.Standbys) == len(standbys) &&
				(len(standbys) == 0 || v.Standbys[0] == standbys[0].Addr())
		}
	}
	t.Logf("start: %v", eventually(t, sh, "start", 2*time.Second, settled(first, second)))

	do(t, first.Stop(ctx, pgcluster.Fast))
	if took := eventually(t, sh, "stop seen", time.Second, func(v *shard.View) bool { return v.Elected == "" }); took > 0 {
		t.Logf("stop seen %v after it had ended", took)
	}
	do(t, second.Promote(ctx))
	t.Logf("switchover: %v after the new primary took writes", eventually(t, sh, "switchover", time.Second, settled(second)))
	if sh.View().Floor != 2 {
		t.Errorf("floor %d", sh.View().Floor)
	}
	do(t, first.Follow(ctx, second))
	do(t, first.Start(ctx))
	t.Logf("standby: %v after it took connections", eventually(t, sh, "standby", 2*time.Second, settled(second, first)))
	do(t, c.CatchUp(ctx))

	do(t, second.Kill())
	t.Logf("crash: %v", eventually(t, sh, "crash", time.Second, func(v *shard.View) bool { return v.Elected == "" }))
	do(t, first.Promote(ctx))
	t.Logf("failover: %v after the new primary took writes", eventually(t, sh, "failover", time.Second, settled(first)))
	if sh.View().Floor != 3 {
		t.Errorf("floor %d", sh.View().Floor)
	}
	do(t, second.Start(ctx)) // it believes that it is the primary, on the old timeline
	watch := time.Now()
	for time.Since(watch) < time.Second {
		if v := sh.View(); v.Elected != first.Addr() || len(v.Standbys) != 0 {
			t.Fatalf("%+v", v)
		}
		<-time.After(time.Millisecond)
	}
}
