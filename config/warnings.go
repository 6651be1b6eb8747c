package config

import (
	"fmt"
	"slices"
)

// Warnings are what the settings allow and hardly anybody wants, in the order of the file's lines: for check, and for the log at
// a start and a reload.
func (c *Config) Warnings() []Problem { return slices.Clone(c.warnings) }

// warnOfFleet says that a member with nobody to join by does not know that there are others.
func (r *reader) warnOfFleet(c *Config) {
	if f := c.Fleet; f != nil && len(f.Join) == 0 && f.Size <= 1 && !c.anyStateFile() {
		r.warn("is empty, fleet_size is 1 and no shard has a state_file: after a restart this member does not know that it has a fleet, "+
			"and grants writes before it has heard what the others know. Set fleet_size, and a state_file for each shard", nil, "fleet", "join")
	}
}

func (c *Config) anyStateFile() bool {
	for _, s := range c.Shards {
		if s.StateFile != "" {
			return true
		}
	}
	return false
}

// warnOfLogins names the logins that will be refused for what the settings have, or lack: one user's secret is no reason to refuse
// the others.
func (r *reader) warnOfLogins(c *Config) {
	auth := c.Fencepost.AuthType
	for _, name := range sortedKeys(c.Users) {
		switch {
		case !r.has("users", name, "password"):
			r.warn(fmt.Sprintf("is not set: this user's logins are refused (auth_type %q)", auth), nil, "users", name, "password")
		case auth == AuthSCRAM && isMD5(c.Users[name].Password.Reveal()):
			r.warn(`is an md5 hash: this user's logins are refused, for auth_type "scram-sha-256" needs a password or a SCRAM verifier`, nil,
				"users", name, "password")
		}
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"admin_users", c.Fencepost.AdminUsers}, {"stats_users", c.Fencepost.StatsUsers}} {
		for _, name := range list.names {
			if c.Users[name] == nil {
				r.warn(fmt.Sprintf("names %q, whose logins are refused: there is no section [users.NAME] for it (auth_type %q)", name, auth),
					list.names, "fencepost", list.key)
			}
		}
	}
}
