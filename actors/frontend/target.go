package frontend

import (
	"strings"

	"fencepost/actors/lane"
	"fencepost/pgerr"
)

// targetOption is the startup option by which a client asks for another kind of server than its database's: directly, or
// in options (-c fencepost.target=standby). It is ours: no server hears of it.
const targetOption = "fencepost.target"

// targetWords are libpq's (target_session_attrs), in the order in which they are told.
var targetWords = [...]struct {
	word   string
	target lane.Target
}{
	{"read-write", lane.ReadWrite},
	{"standby", lane.Standby},
	{"prefer-standby", lane.PreferStandby},
	{"any", lane.Any},
}

// aim takes the client's target from a startup option; false if it is another option. Names of settings are the same in
// upper and lower case, as PostgreSQL has it; the words are not, as libpq has it.
func (f *Frontend) aim(name, value string) (taken bool, e *pgerr.Error) {
	if !strings.EqualFold(name, targetOption) {
		return false, nil
	}
	var words []string
	for _, w := range targetWords {
		if w.word == value {
			f.target, f.aimed = w.target, true
			return true, nil
		}
		words = append(words, w.word)
	}
	return true, pgerr.InvalidStartupValue(targetOption, value, strings.Join(words, ", "))
}

// setRoute makes r the session's route. A target that the client chose outlives its database's.
func (f *Frontend) setRoute(r *Route) {
	f.route = r
	if !f.aimed {
		f.target = r.Target
	}
}
