package admin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster"
	"fencepost/pgerr"
	"fencepost/wire"
)

// Console is the admin actor: it answers Commands, one Answer each, and keeps the samples behind the averages of SHOW
// STATS. Receive never blocks: each command runs on a goroutine that ends with its answer, at the latest when the actor
// stops; a session has one command at a time. What the console knows survives a restart of the actor.
type Console struct {
	ops      Operations
	log      zerolog.Logger
	commands map[string]command // the commands, which reach back to here

	// Of the actor alone.
	self   *actor.PID
	ctx    context.Context // ends when the actor stops
	cancel context.CancelFunc
	timer  *time.Timer
	gen    uint64 // of the timer: a tick of an older one is dropped

	// mu guards what follows. Messages to loops that must arrive in the order of these changes are sent while it is held;
	// nothing that can block is done then.
	mu      sync.Mutex
	paused  map[string]*pause // by database, "" = all
	running map[string]context.CancelCauseFunc
	over    []string // orders to the whole fleet that are withdrawn, the last ones
	held    []string // orders that made writes wait here, the last ones
	stats   history
	own     counters // the console's own row of SHOW STATS
}

// pause is one PAUSE, from the command to its RESUME. order is that of the PAUSE FLEET that began it, "" for none.
type pause struct{ database, order string }

// NewConsole makes the console of a process.
func NewConsole(ops Operations, log zerolog.Logger) *Console {
	return &Console{ops: ops, log: log, commands: commands, paused: map[string]*pause{}, running: map[string]context.CancelCauseFunc{}}
}

// Receive implements actor.Actor.
func (c *Console) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Command:
		go c.serve(c.ctx, m)
	case *cluster.Operation:
		go c.operation(c.ctx, m)
	case *Interrupt:
		c.interrupt(m.From)
	case tick:
		if m.gen == c.gen {
			go c.takeSample(c.ctx, c.self, m.gen)
		}
	case sampled:
		if m.gen == c.gen {
			c.keep(m.sample)
			c.arm()
		}
	case *actor.Started:
		c.start(ctx)
	case *actor.Stopping, *actor.Restarting:
		c.stop()
	case *actor.Stopped:
	default:
		c.log.Error().Type("message", m).Msg("admin: unhandled message")
	}
}

func (c *Console) start(ctx actor.Context) {
	c.self = ctx.Self()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	c.stats.begin(time.Now())
	c.mu.Unlock()
	c.arm()
}

func (c *Console) stop() {
	c.gen++
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.cancel != nil {
		c.cancel()
	}
}

// arm orders the next sample. The period is read each time, so that a reload applies.
func (c *Console) arm() {
	c.gen++
	self, gen, root := c.self, c.gen, c.ops.System().Root
	c.timer = time.AfterFunc(max(c.ops.Config().Fencepost.StatsPeriod, time.Second), func() { root.Send(self, tick{gen}) })
}

func (c *Console) keep(s *sample) {
	if s == nil {
		c.log.Warn().Msg("no sample for SHOW STATS: an event loop did not answer in time")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.push(s)
}

var (
	errInterrupted = errors.New("interrupted")
	errClientGone  = errors.New("the session is gone")
)

func (c *Console) interrupt(from *actor.PID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[from.Id]; cancel != nil {
		cancel(errInterrupted)
	}
}

// serve carries out a command and answers it.
func (c *Console) serve(ctx context.Context, cmd *Command) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	c.running[cmd.From.Id] = cancel
	c.mu.Unlock()
	x := &execution{c: c, ops: c.ops, ctx: ctx, cmd: cmd}
	began := time.Now()
	x.run()
	c.mu.Lock()
	delete(c.running, cmd.From.Id)
	c.own.command(time.Since(began), len(cmd.Text), x.sent+len(x.out))
	c.mu.Unlock()
	c.ops.System().Root.Send(cmd.From, &Answer{Req: cmd.Req, Bytes: x.out})
}

// execution is one command on its way to its answer.
type execution struct {
	c   *Console
	ops Operations
	ctx context.Context
	cmd *Command
	out []byte
	// sent is what of the answer went out early.
	sent int
	// order is that of a command that was given to the whole fleet; "" for one of a session.
	order string
}

// flush sends what there is of the answer; the rest follows.
func (x *execution) flush() {
	x.ops.System().Root.Send(x.cmd.From, &Answer{Req: x.cmd.Req, Bytes: x.out, More: true})
	x.sent, x.out = x.sent+len(x.out), nil
}

// notice adds one to the answer.
func (x *execution) notice(text string) {
	x.out = wire.AppendNotice(x.out, &pgerr.Error{Code: pgerr.SuccessfulCompletion, Message: text})
}

// gone reports whether nobody waits for the answer any more.
func (x *execution) gone() bool {
	if x.cmd.From == nil {
		return false // another member does
	}
	_, alive := x.ops.System().ProcessRegistry.GetLocal(x.cmd.From.Id)
	return !alive
}

// run carries out the statements of the command up to the first that fails.
func (x *execution) run() {
	defer func() {
		if r := recover(); r != nil {
			x.c.log.Error().Interface("reason", r).Bytes("stack", debug.Stack()).Msg("console command failed")
			x.out = wire.AppendError(x.out, pgerr.Internal(fmt.Errorf("console: %v", r)))
		}
	}()
	statements, err := parse(x.cmd.Text)
	if err != nil {
		x.out = wire.AppendError(x.out, err)
		return
	}
	if len(statements) == 0 {
		x.out = wire.AppendEmptyQueryResponse(x.out)
	}
	for _, s := range statements {
		if err := x.statement(s); err != nil {
			x.out = wire.AppendError(x.out, asError(err))
			return
		}
	}
}

func (x *execution) statement(s statement) error {
	do, ok := x.c.commands[s.verb()]
	switch {
	case !ok:
		return pgerr.ConsoleSyntax(s.text)
	case do.admin && !x.cmd.Admin:
		return pgerr.ConsoleDenied()
	case do.admin:
		x.c.log.Info().Str("user", x.cmd.User).Str("command", s.text).Msg("console command")
	}
	if do.fleet && s.forFleet() {
		return x.fleetWide(s)
	}
	return do.run(x, s)
}

// asError is what a client is told of err.
func asError(err error) *pgerr.Error {
	var quiet *silent
	var shard *silentShard
	switch {
	case errors.As(err, &quiet):
		return pgerr.ConsoleError(quiet.Error()).WithHint("The event loop is stuck or overloaded: see SHOW LOOPS and the log. It carries the command out when it responds again.")
	case errors.As(err, &shard):
		return pgerr.ConsoleError(shard.Error()).WithHint("See the log. The shard carries the command out when it responds again.")
	case errors.Is(err, errInterrupted):
		return pgerr.Canceled()
	case errors.Is(err, context.Canceled):
		return pgerr.Shutdown()
	case errors.Is(err, context.DeadlineExceeded):
		return pgerr.ConsoleError("the command did not finish in time")
	}
	return pgerr.As(err)
}

// limited is the context for what loops have to answer.
func (x *execution) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.ctx, answerLimit)
}

// done ends a statement.
func (x *execution) done(tag string) error {
	x.out = wire.AppendCommandComplete(x.out, tag)
	return nil
}
