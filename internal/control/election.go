package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/jackc/pgx/v5"

	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/internal/poll"
)

// lookEvery is how often the hosts are asked.
const lookEvery = 5 * time.Second

// lookLimit bounds the wait for one host's answer.
const lookLimit = 2 * time.Second

// looks is an election that asks every host every 5 s whether it is in recovery, and changes its mind when another one
// than the elected says that it is not. What it was told stays true until then: an answer does not age, a lost
// connection, a refused write and a lower timeline say nothing. With fence = off nobody else finds out either. It must be
// caught.
type looks struct {
	cfg   shard.ActorConfig
	round int // a later round's answers replace an earlier one's
	stop  context.CancelFunc
}

func newLooks(c shard.ActorConfig) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &looks{cfg: c} })
}

// saw is a host's answer that it is no standby.
type saw struct {
	round int
	host  string
}

// Receive implements actor.Actor.
func (l *looks) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		l.look(ctx)
	case *actor.Stopping, *actor.Restarting:
		l.stop()
	case saw:
		if m.round == l.round && m.host != l.cfg.Shard.View().Elected {
			l.elect(ctx, m.host)
		}
	case *shard.Configure:
		l.cfg.Settings = m.Settings
		l.look(ctx)
	case *shard.HostLost:
		l.settle(m.Doubts)
	case *shard.ConnectFailed:
		l.settle(m.Doubts)
	case *shard.Hinted:
		l.settle(m.Doubts)
	case *shard.DescribeShard:
		v := l.cfg.Shard.View()
		m.Reply <- shard.Row{Name: l.cfg.Shard.Name, View: *v, State: v.State, StateReason: v.Why, StateSince: v.Since}
	case *shard.Forget:
		if m.Reply != nil {
			m.Reply <- 0 // it never knew
		}
	}
}

// settle takes a doubt in, and thinks nothing of it.
func (l *looks) settle(doubts bool) {
	if doubts {
		l.cfg.Shard.ClearDoubt()
	}
}

func (l *looks) elect(ctx actor.Context, host string) {
	v := &shard.View{Epoch: l.cfg.Shard.View().Epoch + 1, Elected: host, State: health.Healthy, Since: time.Now(), Why: "it was not in recovery when it was asked last",
		Balance: l.cfg.Settings.Balance, Warm: l.cfg.Settings.Warm, Refuse: l.cfg.Settings.Refuse}
	l.cfg.Shard.Publish(v)
	for _, pid := range l.cfg.Lanes() {
		ctx.Send(pid, &shard.ViewPublished{Shard: l.cfg.Shard})
	}
	l.cfg.Log.Info().Str("host", host).Uint64("epoch", v.Epoch).Msg("control: elected")
}

// look asks all hosts, from now on every lookEvery, each on a goroutine of its own that ends with the next round.
func (l *looks) look(ctx actor.Context) {
	if l.stop != nil {
		l.stop()
	}
	asking, stop := context.WithCancel(context.Background())
	l.stop, l.round = stop, l.round+1
	root, self, round, s := ctx.ActorSystem().Root, ctx.Self(), l.round, l.cfg.Settings
	for _, h := range s.Hosts {
		if h.Role == election.Replica {
			continue
		}
		url := (&url.URL{Scheme: "postgres", User: url.UserPassword(s.User, s.Password), Host: h.Addr, Path: s.Database, RawQuery: "sslmode=disable"}).String()
		go func() {
			poll.Each(asking, lookEvery, func() {
				if inRecovery, err := ask(asking, url); err == nil && !inRecovery {
					root.Send(self, saw{round, h.Addr})
				}
			})
		}()
	}
}

func ask(ctx context.Context, url string) (inRecovery bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&inRecovery)
	return inRecovery, err
}
