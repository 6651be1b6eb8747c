package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/cluster/evidence"
	"fencepost/role"
)

// state is what is known of a shard beyond the life of the process.
type state struct {
	floor   role.Floor // as this process saw it itself
	host    role.Host  // … on this host; "": not known
	seen    time.Time  // … last, about
	ordered time.Time  // when the last FORGET was given; zero: none was
	claims  []evidence.FloorClaim
	members []netip.AddrPort // of the fleet, at last
}

// seenEvery is how far a state file may be behind with when the floor was last seen: a FORGET that is given voids what was seen before
// it, and a member must not lose a floor by it that it has seen since.
const seenEvery = time.Minute

// same reports whether a state file with s need not be written anew for t.
func (s *state) same(t *state) bool {
	return s.floor == t.floor && s.host == t.host && t.seen.Sub(s.seen) < seenEvery && s.ordered.Equal(t.ordered) && slices.Equal(s.members, t.members) &&
		slices.EqualFunc(s.claims, t.claims, func(a, b evidence.FloorClaim) bool {
			return a.Record.Key == b.Record.Key && a.Record.Seq == b.Record.Seq
		})
}

// stateRecord is what a state file holds, as JSON. The identifier is text, because not every reader of JSON keeps so large
// a number whole.
type stateRecord struct {
	SystemID   uint64           `json:"system_identifier,string"`
	Generation uint64           `json:"generation"`
	Timeline   uint32           `json:"timeline"`
	Host       role.Host        `json:"host,omitempty"`
	Seen       time.Time        `json:"seen,omitzero"`
	Forgotten  time.Time        `json:"forgotten,omitzero"`
	Claims     []claimRecord    `json:"claims,omitempty"`
	Members    []netip.AddrPort `json:"members,omitempty"`
}

// claimRecord is the claim of another member: who saw which host on what.
type claimRecord struct {
	Host       role.Host `json:"host"`
	SystemID   uint64    `json:"system_identifier,string"`
	Generation uint64    `json:"generation"`
	Timeline   uint32    `json:"timeline"`
	Seen       time.Time `json:"seen"`
	Member     string    `json:"member"`
	Observer   string    `json:"observer"`
	Seq        uint64    `json:"seq"`
}

// What a state file may have at most.
const (
	maxState   = 64 << 10 // bytes
	maxClaims  = 32
	maxMembers = 64
)

// readState reads a state file of a shard. One that is not there is an empty one.
func readState(path, shard string) (s state, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return s, err
	}
	var r *stateRecord
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case r == nil, d.More():
		return s, fmt.Errorf("%s: not one JSON object", path)
	case r.Timeline != 0 && r.SystemID == 0:
		return s, fmt.Errorf("%s: a timeline without a system identifier", path)
	}
	now := time.Now()
	s = state{floor: role.Floor{SystemID: r.SystemID, Generation: r.Generation, Timeline: r.Timeline}, host: r.Host,
		seen: past(now, r.Seen), ordered: past(now, r.Forgotten), members: r.Members}
	for _, c := range r.Claims {
		observer, err := evidence.ParseBoot(c.Observer)
		record, ok := evidence.NewClaimed(evidence.ShardOf(shard), observer, c.Seq, c.Host,
			role.Floor{SystemID: c.SystemID, Generation: c.Generation, Timeline: c.Timeline}, past(now, c.Seen))
		if err != nil || !ok {
			return state{}, fmt.Errorf("%s: the claim about %q makes no sense", path, c.Host)
		}
		s.claims = append(s.claims, evidence.FloorClaim{Record: record, Member: c.Member, Kept: true})
	}
	return s, nil
}

// past is a time of a file by the clock of this process. One that has not come yet, because the clock was set back, is now.
func past(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-max(0, now.Round(0).Sub(t)))
}

// writeState replaces a state file: after a crash there is the old one or the new one, whole.
func writeState(path string, s *state) error {
	r := stateRecord{SystemID: s.floor.SystemID, Generation: s.floor.Generation, Timeline: s.floor.Timeline, Host: s.host,
		Seen: stamp(s.seen), Forgotten: stamp(s.ordered), Members: s.members}
	for _, c := range s.claims {
		k := c.Record
		r.Claims = append(r.Claims, claimRecord{Host: role.Host(k.Host.String()), SystemID: k.Floor.SystemID, Generation: k.Floor.Generation,
			Timeline: k.Floor.Timeline, Seen: stamp(k.At), Member: c.Member, Observer: k.Observer.String(), Seq: k.Seq})
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := writeSynced(fresh, append(text, '\n')); err != nil {
		os.Remove(fresh)
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Round(0).UTC().Truncate(time.Millisecond)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// stateKeeper knows what the state file holds. One write is under way at a time.
type stateKeeper struct {
	known    bool   // it was read, or there was none
	path     string // of the file that holds state
	state    state  // in the file
	busy     bool
	retry    time.Time
	failures repeated
}

// retryWrite is how long after a failed write the next one comes.
const retryWrite = 5 * time.Second

// read records what the file held. A file that cannot be read or makes no sense is taken for none, loudly: with a floor
// of its own imagination the shard would have no primary until somebody ran FORGET, while without one it is as safe as a
// shard without a state file, and the floor rises again to what its hosts show.
func (k *stateKeeper) read(log zerolog.Logger, m stateRead) {
	k.known = true
	if m.err != nil {
		log.Error().Str("state_file", m.path).Err(m.err).
			Msg("shard: the state file cannot be used and is ignored: a primary on an older timeline than the last one would not be noticed")
		return
	}
	k.path, k.state = m.path, m.state
	if m.state.floor != (role.Floor{}) {
		log.Info().Str("state_file", m.path).Stringer("floor", m.state.floor).Int("claims", len(m.state.claims)).Msg("shard: state file read")
	}
}

// written records how a write ended.
func (k *stateKeeper) written(now time.Time, log zerolog.Logger, m stateWritten) {
	k.busy = false
	if m.err == nil {
		k.path, k.state, k.retry, k.failures = m.path, *m.state, time.Time{}, repeated{}
		return
	}
	k.retry = now.Add(retryWrite)
	if count, due := k.failures.due(now); due {
		log.Error().Str("state_file", m.path).Err(m.err).Int("count", count).Msg("shard: the state file cannot be written")
	}
}

// save writes what is known to the state file at path if that holds anything else. The goroutine ends with the write, which
// sends stateWritten.
func (k *stateKeeper) save(now time.Time, ctx actor.Context, path string, e *election.Machine, p *peers) {
	if path == "" || k.busy || now.Before(k.retry) {
		return
	}
	v := e.View()
	if v.Teacher != "" {
		return // one server's word, which may be a stranger's
	}
	s := state{floor: v.Floor, seen: v.Seen, ordered: p.ordered, claims: p.adopted(), members: p.members}
	s.floor.Timeline = v.Own // what others claim is among claims
	if o, ok := e.OnFloor(); ok {
		s.host = o.Host
	} else if s.floor == k.state.floor {
		s.host = k.state.host
	}
	if k.state.same(&s) && path == k.path || s.floor == (role.Floor{}) {
		return
	}
	k.busy = true
	root, self := ctx.ActorSystem().Root, ctx.Self()
	go func() { root.Send(self, stateWritten{path, &s, writeState(path, &s)}) }()
}
