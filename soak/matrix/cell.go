package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
	"fencepost/soak/matrix/client"
	"fencepost/soak/matrix/verdict"
	"fencepost/soak/matrix/world"
)

// servedLimit bounds the wait for all clients to be served before the event.
const servedLimit = 20 * time.Second

// dialLimit bounds a client's connect to one host.
const dialLimit = 2 * time.Second

// cell plays one event and keeps the result. An error says that the world or the arm is of no more use.
func (p *pass) cell(ctx context.Context, repeat int) error {
	ctx, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	c := &Cell{Arm: p.name, Event: p.event.Name(), Repeat: repeat, Began: time.Now().UTC().Truncate(time.Millisecond)}
	began := time.Now()
	p.progress.begin(c)
	err := p.play(ctx, c)
	c.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	if errors.Is(ctx.Err(), context.Canceled) { // interrupted: nothing is known
		return ctx.Err()
	}
	if err != nil {
		c.Error = err.Error()
	}
	p.report.put(c)
	p.progress.end(c)
	if c.suspicious(p.report.Settings.Synchronous) {
		err = errors.Join(err, p.keepLogs(c))
	}
	return errors.Join(err, p.store.save(p.report))
}

func (p *pass) play(ctx context.Context, c *Cell) error {
	if err := p.startArm(ctx); err != nil {
		return err
	}
	if err := asOwner(ctx, p.w.Primary(), "TRUNCATE ledger"); err != nil {
		return err
	}
	began, limit := time.Now(), p.o.limit(c.Event)
	crew := client.Start(client.Options{Connect: p.arm.Connect, Clients: p.o.Clients, Seed: p.o.Seed + uint64(c.Repeat)<<32, Began: began,
		Think: p.o.Think, Backoff: p.o.Backoff, Limit: limit, Dial: dialLimit})
	watched := p.progress.watch(c, crew, p.w)
	occurrence, forgot, err := p.happen(ctx, crew)
	watched()
	h := crew.Stop(limit / 2)
	if err != nil {
		return err
	}
	if err := p.arm.Alive(); err != nil {
		return err
	}
	writer := p.w.Primary()
	ledger, err := readLedger(ctx, writer)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	v := view{began: began, ended: time.Now(), occurrence: occurrence, forgot: forgot, world: p.w}
	t := v.truth()
	h.PerClient = p.arm.PerClient
	v.said(p.arm.Said(), h)
	c.Old, c.New, c.Rate, c.Steps, c.Elections = occurrence.Old, occurrence.New, v.rate(), v.marks(), v.elections
	c.Result = verdict.Judge(h, t, ledger)
	if c.Repeat == 1 || c.suspicious(p.report.Settings.Synchronous) {
		return p.store.saveHistory(c, v.row(c, h))
	}
	return nil
}

// happen waits until the clients are served, has the event happen, and gives them time to recover.
func (p *pass) happen(ctx context.Context, crew *client.Crew) (o world.Occurrence, forgot []time.Time, err error) {
	if err := p.served(ctx, crew); err != nil {
		return o, nil, err
	}
	if err := poll.For(ctx, p.o.Before); err != nil {
		return o, nil, err
	}
	if o, err = p.event.Run(ctx, p.w); err != nil {
		return o, nil, fmt.Errorf("%s: %w", p.event.Name(), err)
	}
	if o.Name == world.KindPromoteCopy { // whoever withdraws a promoted copy says so
		forgot = append(forgot, time.Now())
		if err := p.arm.Forget(ctx); err != nil {
			return o, nil, fmt.Errorf("forget: %w", err)
		}
	}
	return o, forgot, poll.For(ctx, p.o.After)
}

// served waits until there were as many transactions as there are clients, twice over.
func (p *pass) served(ctx context.Context, crew *client.Crew) error {
	ctx, cancel := context.WithTimeout(ctx, servedLimit)
	defer cancel()
	served := func() (bool, error) { return crew.Counts().Acked >= 2*int64(p.o.Clients), nil }
	if err := poll.Until(ctx, 20*time.Millisecond, served); err != nil {
		return fmt.Errorf("clients are not served before the event: %+v: %w", crew.Counts(), err)
	}
	return nil
}

// connect is a connection of the superuser's to a server, past all relays.
func connect(ctx context.Context, s *world.Server) (*pgx.Conn, error) {
	u := url.URL{Scheme: "postgres", User: url.User(pgcluster.Superuser), Host: s.DirectAddr, Path: database, RawQuery: "sslmode=disable"}
	return pgx.Connect(ctx, u.String())
}

func asOwner(ctx context.Context, s *world.Server, statements ...string) error {
	conn, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func readLedger(ctx context.Context, s *world.Server) (verdict.Ledger, error) {
	conn, err := connect(ctx, s)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, client.Ledger)
	if err != nil {
		return nil, err
	}
	l := verdict.Ledger{}
	var row verdict.Row
	var n int
	_, err = pgx.ForEachRow(rows, []any{&row.Client, &row.Seq, &n}, func() error {
		l[row] = n
		return nil
	})
	return l, err
}

// keepLogs copies what the arm has printed.
func (p *pass) keepLogs(c *Cell) error {
	if p.arm == nil {
		return nil
	}
	for _, file := range p.arm.Logs() {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := p.store.write(filepath.Join("logs", c.name()+"-"+filepath.Base(file)), b); err != nil {
			return err
		}
	}
	return nil
}
