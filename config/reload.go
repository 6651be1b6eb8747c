package config

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/BurntSushi/toml"
)

// Changes lists what differs between two configurations: the keys that a reload applies, and those that only a new
// process would. Keys of [fencepost] are bare (pool_mode), others full (databases.app.pool_size); a section that was
// added or removed is listed by its own name (users.app). Alphabetical, without values.
func Changes(from, to *Config) (applied, needRestart []string) {
	note := func(key string, reloadable bool) {
		if reloadable {
			applied = append(applied, key)
		} else {
			needRestart = append(needRestart, key)
		}
	}
	compare(&from.Fencepost, &to.Fencepost, fencepostSettings, note)
	compareNamed("shards", writtenShards(from), writtenShards(to), shardSettings, note)
	compareNamed("databases", writtenDatabases(from), writtenDatabases(to), databaseSettings, note)
	compareNamed("users", from.Users, to.Users, userSettings, note)
	fleetChanges(from.Fleet, to.Fleet, note)
	compareNamed("peers", byName(from.Peers), byName(to.Peers), peerSettings, note)
	slices.Sort(applied)
	slices.Sort(needRestart)
	return applied, needRestart
}

// Reloaded returns what is in force after a running process has loaded a new file: loaded, but with everything that needs
// a restart as it is in running. Neither argument is changed.
func Reloaded(running, loaded *Config) *Config {
	next := *loaded
	from, to := reflect.ValueOf(&running.Fencepost).Elem(), reflect.ValueOf(&next.Fencepost).Elem()
	for _, s := range fencepostSettings {
		if !s.reloadable {
			to.Field(s.index).Set(from.Field(s.index))
		}
	}
	next.Fleet = reloadedFleet(running.Fleet, loaded.Fleet)
	return &next
}

func byName(peers map[int]*Peer) map[string]*Peer {
	named := map[string]*Peer{}
	for id, p := range peers {
		named[strconv.Itoa(id)] = p
	}
	return named
}

// writtenShards leaves out the shards made of hosts in databases: those hosts are a setting of the database.
func writtenShards(c *Config) map[string]*Shard {
	written := map[string]*Shard{}
	for name, shard := range c.Shards {
		if shardName.MatchString(name) {
			written[name] = shard
		}
	}
	return written
}

// writtenDatabases takes back the names of shards made of hosts.
func writtenDatabases(c *Config) map[string]*Database {
	written := map[string]*Database{}
	for name, db := range c.Databases {
		if len(db.Hosts) > 0 {
			plain := *db
			plain.Shard = ""
			db = &plain
		}
		written[name] = db
	}
	return written
}

func compare(from, to any, settings []setting, note func(string, bool)) {
	a, b := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for _, s := range settings {
		if !reflect.DeepEqual(a.Field(s.index).Interface(), b.Field(s.index).Interface()) {
			note(s.key, s.reloadable)
		}
	}
}

func compareNamed[T any](section string, from, to map[string]*T, settings []setting, note func(string, bool)) {
	for name, was := range from {
		full := toml.Key{section, name}.String()
		is, ok := to[name]
		if !ok {
			note(full, true)
			continue
		}
		compare(was, is, settings, func(key string, reloadable bool) { note(full+"."+key, reloadable) })
	}
	for name := range to {
		if from[name] == nil {
			note(toml.Key{section, name}.String(), true)
		}
	}
}
