package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

func (r *reader) validateShard(c *Config, s *Shard) {
	at := func(key string) []string { return []string{"shards", s.Name, key} }
	if !shardName.MatchString(s.Name) {
		r.problem("must have a name of 1 to 63 letters, digits, dots, dashes and underscores", nil, "shards", s.Name)
	}
	if !r.has(at("hosts")...) {
		r.problem(`must be set: the shard's hosts, such as ["127.0.0.1:5432"]`, nil, at("hosts")...)
	}
	r.notBefore("evidence_ttl", s.EvidenceTTL, s, "otherwise the shard would be in doubt between any two answers")
	r.notBefore("unhealthy_after", s.UnhealthyAfter, s, "otherwise the shard would be unhealthy between any two answers")
	if s.MonitorPassword.IsSet() && r.sound(at("monitor_password")...) {
		if !s.MonitorPassword.plaintext() {
			r.problem("must be the password itself: a verifier is not enough to log in to a server", nil, at("monitor_password")...)
		}
		if !r.has(at("monitor_user")...) {
			r.problem("must come with monitor_user: it is the password of that user", nil, at("monitor_password")...)
		}
	}
	if s.StateFile != "" && r.sound(at("state_file")...) {
		r.validateStateFile(c, s, at("state_file"))
	}
}

// notBefore checks that the setting key is at least twice the interval at which hosts are asked.
func (r *reader) notBefore(key string, value time.Duration, s *Shard, why string) {
	at := []string{"shards", s.Name, key}
	if value >= 2*s.RoleCheckInterval || !r.sound(at...) || !r.sound("shards", s.Name, "role_check_interval") {
		return
	}
	rule := fmt.Sprintf("must be at least twice role_check_interval (%s): %s", formatDuration(s.RoleCheckInterval), why)
	if r.has(at...) {
		r.problem(rule, formatDuration(value), at...)
	} else {
		r.problem(fmt.Sprintf("%s; its default is %s", rule, formatDuration(value)), nil, at...)
	}
}

// validateStateFile lets the path of a shard's state file begin at the settings file.
func (r *reader) validateStateFile(c *Config, s *Shard, at []string) {
	written := s.StateFile
	if s.StateFile = filepath.Clean(written); !filepath.IsAbs(s.StateFile) {
		s.StateFile = filepath.Join(filepath.Dir(r.path), s.StateFile)
	}
	if s.StateFile == filepath.Clean(r.path) {
		r.problem("must not be the settings file, it is written to", written, at...)
	}
	for _, name := range sortedKeys(c.Shards) {
		if name < s.Name && c.Shards[name].StateFile == s.StateFile { // the paths of those before it begin there already
			r.problem("must be a file of the shard's own, not that of "+name, written, at...)
		}
	}
}

// validateMonitors checks that somebody can log in to the hosts of each shard with roles. It comes after everything else:
// whose password is usable is known only then.
func (r *reader) validateMonitors(c *Config) {
	if !r.sound("users") || !r.sound("databases") || !r.sound("fencepost", "auth_type") {
		return
	}
	const login = "for the monitors to log in with, as no user has a plaintext password"
	for _, name := range sortedKeys(c.Shards) {
		s := c.Shards[name]
		if _, _, _, ok := c.MonitorLogin(s); ok || !s.HasRoles() || !r.sound("shards", name, "hosts") ||
			!r.sound("shards", name, "monitor_user") {
			continue
		}
		if r.has("shards", name) {
			r.problem("must be set, with monitor_password, "+login+
				`; or list one host alone, with the role "any"`, nil, "shards", name, "monitor_user")
			continue
		}
		for _, db := range sortedKeys(c.Databases) { // the shard has no section, it is made of hosts
			if c.Databases[db].Shard == name {
				r.problem("must be the hosts of a [shards.NAME] section with monitor_user and monitor_password, "+login+
					`; or list one host alone, with the role "any"`, nil, "databases", db, "hosts")
				break
			}
		}
	}
}

// validateAsking checks a database whose shard's host has the role any: what asks for a certain kind of server would have
// no effect, and somebody who wrote it relies on it.
func (r *reader) validateAsking(c *Config, db *Database, at func(string) []string) {
	shard := c.Shards[db.Shard]
	if shard == nil || len(shard.Hosts) == 0 || shard.HasRoles() {
		return
	}
	const why = `: the host of its shard has the role "any", it has no monitor`
	if slices.Contains([]Target{TargetStandby, TargetPreferStandby}, db.Target) {
		r.problem("must not be set"+why, string(db.Target), at("target")...)
	}
	if db.Fence == FenceAuto || db.Fence == FenceAlways {
		r.problem("must not be set"+why, string(db.Fence), at("fence")...)
	}
}
