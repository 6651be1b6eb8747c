package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/role"
)

// stateRecord is what a state file holds, as JSON. The identifier is text, because not every reader of JSON keeps so large
// a number whole.
type stateRecord struct {
	SystemID   uint64 `json:"system_identifier,string"`
	Generation uint64 `json:"generation"`
	Timeline   uint32 `json:"timeline"`
}

// maxState is more than any state file has.
const maxState = 4096

// readState reads a state file. One that is not there is an empty one.
func readState(path string) (role.Floor, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return role.Floor{}, nil
	}
	if err != nil {
		return role.Floor{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return role.Floor{}, err
	}
	var s *stateRecord
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return role.Floor{}, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case s == nil, d.More():
		return role.Floor{}, fmt.Errorf("%s: not one JSON object", path)
	case s.Timeline != 0 && s.SystemID == 0:
		return role.Floor{}, fmt.Errorf("%s: a timeline without a system identifier", path)
	}
	return role.Floor{SystemID: s.SystemID, Generation: s.Generation, Timeline: s.Timeline}, nil
}

// writeState replaces a state file: after a crash there is the old one or the new one, whole.
func writeState(path string, floor role.Floor) error {
	text, err := json.Marshal(stateRecord{floor.SystemID, floor.Generation, floor.Timeline})
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
	known    bool       // it was read, or there was none
	path     string     // of the file that holds floor
	floor    role.Floor // in the file; zero: none
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
	k.path, k.floor = m.path, m.floor
	if m.floor != (role.Floor{}) {
		log.Info().Str("state_file", m.path).Stringer("floor", m.floor).Msg("shard: state file read")
	}
}

// written records how a write ended.
func (k *stateKeeper) written(now time.Time, log zerolog.Logger, m stateWritten) {
	k.busy = false
	if m.err == nil {
		k.path, k.floor, k.retry, k.failures = m.path, m.floor, time.Time{}, repeated{}
		return
	}
	k.retry = now.Add(retryWrite)
	if count, due := k.failures.due(now); due {
		log.Error().Str("state_file", m.path).Err(m.err).Int("count", count).Msg("shard: the state file cannot be written")
	}
}

// save writes the floor to the state file at path if that holds another one. The goroutine ends with the write, which sends
// stateWritten.
func (k *stateKeeper) save(now time.Time, ctx actor.Context, path string, v election.View) {
	floor := v.Floor
	floor.Timeline = v.Own // what others claim they can claim again
	if path == "" || k.busy || now.Before(k.retry) || floor == k.floor && path == k.path || floor == (role.Floor{}) {
		return
	}
	k.busy = true
	root, self := ctx.ActorSystem().Root, ctx.Self()
	go func() { root.Send(self, stateWritten{path, floor, writeState(path, floor)}) }()
}
