package config

import (
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// Changes lists what differs between two configurations: the keys that a reload applies, and those that only a new
// process would. Keys of [fencepost] are bare (pool_mode), others full (databases.app.pool_size); a section that was
// added or removed is listed by its own name (users.app). Alphabetical, without values.
func Changes(old, new *Config) (applied, needRestart []string) {
	note := func(key string, reloadable bool) {
		if reloadable {
			applied = append(applied, key)
		} else {
			needRestart = append(needRestart, key)
		}
	}
	compare(&old.Fencepost, &new.Fencepost, fencepostSettings, note)
	compareNamed("shards", old.Shards, new.Shards, shardSettings, note)
	compareNamed("databases", old.Databases, new.Databases, databaseSettings, note)
	compareNamed("users", old.Users, new.Users, userSettings, note)
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
	return &next
}

func compare(old, new any, settings []setting, note func(string, bool)) {
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem()
	for _, s := range settings {
		if !reflect.DeepEqual(a.Field(s.index).Interface(), b.Field(s.index).Interface()) {
			note(s.key, s.reloadable)
		}
	}
}

func compareNamed[T any](section string, old, new map[string]*T, settings []setting, note func(string, bool)) {
	for name, was := range old {
		full := toml.Key{section, name}.String()
		is, ok := new[name]
		if !ok {
			note(full, true)
			continue
		}
		compare(was, is, settings, func(key string, reloadable bool) { note(full+"."+key, reloadable) })
	}
	for name := range new {
		if old[name] == nil {
			note(toml.Key{section, name}.String(), true)
		}
	}
}
