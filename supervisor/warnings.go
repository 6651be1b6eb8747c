package supervisor

import (
	"github.com/rs/zerolog"

	"fencepost/config"
)

// warnOf logs what the settings allow and hardly anybody wants, and what this process cannot have of it.
func warnOf(log zerolog.Logger, cfg *config.Config, files *descriptors) {
	for _, w := range cfg.Warnings() {
		log.Warn().Str("setting", w.Key).Str("value", w.Value).Int("line", w.Line).Str("rule", w.Rule).Msg("settings: warning")
	}
	files.warn(log)
}
