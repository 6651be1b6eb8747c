package soak

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fencepost/internal/product"
	"fencepost/soak/ledger"
)

// settleLimit is how long Fencepost may take to be as it was before the load once all clients have left.
const settleLimit = 40 * time.Second

// finish checks what must be true when all clients have left.
func (r *run) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), finishLimit)
	defer cancel()
	if !r.product.Running() {
		r.violateOnce(processTrouble, "%v", r.product.Process().Alive())
	} else {
		r.settle(ctx)
		r.gauges(ctx)
		r.counts(ctx)
	}
	r.memory()
	r.ledger(ctx)
	r.explained()
}

// settle waits until descriptors, actors and goroutines are what they were before.
func (r *run) settle(ctx context.Context) {
	began := time.Now()
	var s sample
	var err error
	for {
		if s, err = r.look(ctx); err == nil && s.FDs <= r.base.FDs && s.Actors <= r.base.Actors && s.Goroutines <= r.base.Goroutines &&
			s.Servers <= r.restingServers() && s.Queued == 0 {
			r.say("settled after %.1f s: %d descriptors, %d actors, %d goroutines", time.Since(began).Seconds(), s.FDs, s.Actors, s.Goroutines)
			r.settled = s
			if r.settled.Live, err = r.liveHeap(ctx); err != nil {
				r.violate(processTrouble, "%v", err)
			}
			return
		}
		if time.Since(began) > settleLimit || !sleep(ctx, 250*time.Millisecond) {
			break
		}
	}
	if err != nil {
		r.violate(processTrouble, "no metrics at the end: %v", err)
		return
	}
	r.settled = s
	r.violate(leak, "%v after the last client: %d descriptors (before: %d), %d actors (%d), %d goroutines (%d), %d server connections (%d), %d bytes queued; %s",
		settleLimit, s.FDs, r.base.FDs, s.Actors, r.base.Actors, s.Goroutines, r.base.Goroutines, s.Servers, r.restingServers(), s.Queued, r.clientsNow())
}

// gaugeLimit is how long SHOW POOLS may show something: a server connection may just be replaced for its age.
const gaugeLimit = 10 * time.Second

// gauges looks at SHOW POOLS and SHOW LISTS, where nothing but this console may be.
func (r *run) gauges(ctx context.Context) {
	c := r.product.OpenConsole()
	defer c.Close()
	for began := time.Now(); ; {
		problems, err := r.gaugesNow(ctx, c)
		switch {
		case err != nil:
			r.violate(processTrouble, "%v", err)
			return
		case len(problems) == 0:
			return
		case time.Since(began) > gaugeLimit || !sleep(ctx, 300*time.Millisecond):
			for _, p := range problems {
				r.violate(gaugeOff, "%s", p)
			}
			return
		}
	}
}

// gaugesNow lists the gauges that are not what they are at rest.
func (r *run) gaugesNow(ctx context.Context, c *product.Console) (problems []string, err error) {
	pools, err := c.Run(ctx, "SHOW POOLS")
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		for name, v := range p {
			zero := strings.HasPrefix(name, "cl_") || strings.HasPrefix(name, "maxwait") || strings.HasPrefix(name, "sv_") && name != "sv_idle"
			own := p["user"] == p["database"] && name == "cl_active" && v == "1" // the console's own row
			if zero && !own && v != "0" {
				problems = append(problems, fmt.Sprintf("SHOW POOLS: %s of %s/%s is %s", name, p["database"], p["user"], v))
			}
		}
	}
	lists, err := c.Run(ctx, "SHOW LISTS")
	if err != nil {
		return nil, err
	}
	want := map[string]int{"used_clients": 1, "login_clients": 0, "used_servers": r.restingServers()}
	for _, l := range lists {
		if n, ok := want[l["list"]]; ok && l["items"] != strconv.Itoa(n) {
			problems = append(problems, fmt.Sprintf("SHOW LISTS: %s is %s, wanted %d", l["list"], l["items"], n))
		}
	}
	return problems, nil
}

// counts compares Fencepost's totals with the load's: a query is counted when its ReadyForQuery comes from the server,
// so there are at least as many as clients have got (refusals, whose ReadyForQuery is Fencepost's own, left out) and at
// most as many as clients have asked for.
func (r *run) counts(ctx context.Context) {
	s, err := r.look(ctx)
	if err != nil {
		r.violate(processTrouble, "no metrics at the end: %v", err)
		return
	}
	counted := s.Queries - r.base.Queries
	most := r.meter.Requests.Load()
	least := r.meter.Ready.Load() - int64(r.errors("53300", "57P03", "57014"))
	if counted < least || counted > most {
		r.violate(countsOff, "fencepost counts %d queries; clients asked %d and got %d answers that were not refusals", counted, most, least)
	}
}

func (r *run) memory() {
	all := judgeMemory(r.watch.all(), 0, r.loadEnd)
	if r.settled.Live > 0 {
		all = append(all, restingHeap(r.base.Live, r.settled.Live, r.opts.Loops))
	}
	for _, m := range all {
		r.memories = append(r.memories, m)
		if !m.Flat {
			r.violate(memoryGrowth, "%s", m)
		}
	}
}

// ledger compares what clients know with what is in the databases, and the accounts with their sum.
func (r *run) ledger(ctx context.Context) {
	found := map[ledger.Key]ledger.Rows{}
	for i := range r.dbs {
		sum, err := readLedger(ctx, r.node, &r.dbs[i], found)
		if err != nil {
			r.violate(harness, "read the ledger of %s: %v", r.dbs[i].server, err)
			return
		}
		if sum != accounts*accountBalance {
			r.violate(ledgerBroken, "the accounts of %s have %d, wanted %d", r.dbs[i].server, sum, accounts*accountBalance)
		}
	}
	problems, committed := r.book.Compare(found)
	r.committed = committed
	for _, p := range problems {
		r.violate(ledgerBroken, "%s", p)
	}
}

// explained checks that there are no more lost sessions than there was sabotage: each backend that was terminated may
// end one session, each restart all that are at work.
func (r *run) explained() {
	lost := r.errors("57P01", "57P02", "08006", "08007")
	limit := int(r.causes.terminated.Load() + r.causes.kills.Load())
	for i := range r.dbs {
		limit += int(r.causes.restarts.Load()) * 2 * r.dbs[i].backendLimit() // those before, and those that logged in while it went down
	}
	if lost > limit {
		r.violate(unexpected, "%d sessions were ended by a lost server connection, but sabotage explains %d", lost, limit)
	}
}

// attach writes something too long for a violation's text into a file and returns where it is.
func (r *run) attach(what, text string) string {
	if r.opts.OutDir == "" {
		return text
	}
	path := filepath.Join(r.opts.OutDir, fmt.Sprintf("soak-%s-%d.txt", what, r.files.Add(1)))
	if err := os.MkdirAll(r.opts.OutDir, 0o755); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err.Error()
	}
	return "see " + path
}

// portOf is the port of host:port.
func portOf(addr string) int {
	_, p, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(p)
	return n
}
