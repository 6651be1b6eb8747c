package supervisor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	cmap "github.com/orcaman/concurrent-map"
	"github.com/rs/zerolog"

	"fencepost/actors/frontend"
)

// The actor runtime keeps its names in 1024 maps, each of SHARD_COUNT maps of its own. With the default of 32 that is 32 768
// maps which each take memory for good when a name first falls into them: 9 MiB over the first 100 000 sessions.
func init() { cmap.SHARD_COUNT = 1 }

// newSystem makes the actor system. Its own logging would print whole messages, passwords among them: only its texts and
// the names of actors are let through.
func newSystem(log zerolog.Logger) *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(runtimeLog{log}) }),
		actor.WithDeadLetterRequestLogging(false), actor.WithDeadLetterThrottleCount(0))
}

// runtimeLog passes the actor runtime's log on without the values in it.
type runtimeLog struct{ log zerolog.Logger }

func (r runtimeLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (r runtimeLog) Handle(_ context.Context, rec slog.Record) error {
	e := r.log.Warn()
	if rec.Level >= slog.LevelError {
		e = r.log.Error()
	}
	rec.Attrs(func(a slog.Attr) bool {
		if pid, ok := a.Value.Any().(*actor.PID); ok && pid != nil {
			e = e.Str("actor_"+a.Key, pid.Id)
		}
		return true
	})
	e.Str("runtime", rec.Message).Msg("actor runtime")
	return nil
}

func (r runtimeLog) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r runtimeLog) WithGroup(string) slog.Handler      { return r }

// deadLetters counts messages to actors that are gone, and ends what such a message owned.
type deadLetters struct {
	count atomic.Uint64
}

func (d *deadLetters) subscribe(system *actor.ActorSystem, log zerolog.Logger) {
	last := atomic.Int64{}
	system.EventStream.Subscribe(func(ev any) {
		dl, ok := ev.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		switch m := dl.Message.(type) {
		case *frontend.Admit:
			m.Socket.Close()
		case *frontend.CancelQuery:
			m.Done()
		case *frontend.CancelRequest:
			m.Done()
		}
		n := d.count.Add(1)
		now := time.Now().Unix()
		if before := last.Load(); now-before >= 60 && last.CompareAndSwap(before, now) {
			log.Debug().Type("message_type", dl.Message).Uint64("count", n).Msg("message to an actor that is gone")
		}
	})
}
