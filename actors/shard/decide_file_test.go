package shard_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
)

// A state file says when the floor was last seen, to a minute, also if nothing else has changed for long.
func TestShardStateFileKeepsUp(t *testing.T) {
	s := settings(hostA, hostB)
	s.StateFile = filepath.Join(t.TempDir(), "state.json")
	inPlace(t, s, func(p *place) {
		p.healthy()
		for range 5 {
			p.run(time.Minute+time.Second, p.beat)
			text, err := os.ReadFile(s.StateFile)
			if err != nil {
				t.Fatal(err)
			}
			var file struct{ Seen time.Time }
			if err := json.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			if behind := time.Since(file.Seen); behind > time.Minute {
				t.Errorf("the file is behind by %s", behind)
			}
		}
	})
}

// An actor that fails when it is told that the state file was written writes the next one all the same.
func TestShardFailsWhenTheStateFileWasWritten(t *testing.T) {
	s := settings(hostA)
	s.StateFile = filepath.Join(t.TempDir(), "state.json")
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, s)
		var broken atomic.Bool
		lanes := p.cfg.Lanes
		p.cfg.Lanes = func() []*actor.PID {
			if broken.Swap(false) {
				panic("injected")
			}
			return lanes()
		}
		p.open()
		p.healthy()
		blocked := make(chan shard.Row)
		p.system.Root.Send(p.pid, &monitor.Observed{Observation: primary(hostA, 2)})
		p.system.Root.Send(p.pid, &shard.DescribeShard{Reply: blocked}) // the actor stands still, and has a new view to tell of behind it
		time.Sleep(4 * time.Second)
		broken.Store(true)
		<-blocked
		p.settle()
		if broken.Load() || p.row().Counts.Restarts != 1 {
			t.Fatal("the actor did not fail")
		}
		p.probed(primary(hostA, 3))
		text, err := os.ReadFile(s.StateFile)
		if err != nil || !strings.Contains(string(text), `"timeline":3,`) {
			t.Errorf("the state file: %s, %v", text, err)
		}
		p.close()
		time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
	})
}
