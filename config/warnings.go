package config

// Warnings name what the settings allow and hardly anybody wants: for check, and for the log at the start.
func (c *Config) Warnings() (all []string) {
	if f := c.Fleet; f != nil && len(f.Join) == 0 && f.Size <= 1 && !c.anyStateFile() {
		all = append(all, "fleet.join is empty, fleet_size is 1 and no shard has a state_file: after a restart this member does not know that it has a fleet, "+
			"and grants writes before it has heard what the others know. Set fleet_size, and a state_file for each shard.")
	}
	return all
}

func (c *Config) anyStateFile() bool {
	for _, s := range c.Shards {
		if s.StateFile != "" {
			return true
		}
	}
	return false
}
