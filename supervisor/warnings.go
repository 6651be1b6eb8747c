package supervisor

import "fencepost/config"

// warnOfSettings logs what the settings allow and hardly anybody wants.
func (s *Fencepost) warnOfSettings(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		s.log.Warn().Str("setting", w.Key).Str("value", w.Value).Int("line", w.Line).Str("rule", w.Rule).Msg("settings: warning")
	}
}
