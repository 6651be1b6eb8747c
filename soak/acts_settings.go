package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// choices are settings that are carried from session to session, with values as the server spells them. The first value
// is the server's default.
var choices = map[string][]string{
	"TimeZone":        {"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"},
	"DateStyle":       {"ISO, MDY", "German, DMY", "SQL, DMY", "Postgres, YMD"},
	"IntervalStyle":   {"postgres", "iso_8601", "sql_standard", "postgres_verbose"},
	"client_encoding": {"UTF8", "LATIN1"},
}

var settingNames = slices.Sorted(maps.Keys(choices))

// chooseSettings returns startup parameters, some of them inside options, and what the settings should be then.
func chooseSettings(rng *rand.Rand, appName string) (params, want map[string]string) {
	params, want = map[string]string{"application_name": appName}, map[string]string{"application_name": appName}
	var options []string
	for _, n := range settingNames {
		values := choices[n]
		want[n] = values[0]
		if rng.IntN(2) == 0 {
			continue
		}
		want[n] = values[rng.IntN(len(values))]
		switch rng.IntN(4) {
		case 0:
			options = append(options, "-c "+n+"="+escapeOption(want[n]))
		case 1:
			options = append(options, "--"+n+"="+escapeOption(want[n]))
		default:
			params[n] = want[n]
		}
	}
	if options != nil {
		params["options"] = strings.Join(options, " ")
	}
	if rng.IntN(4) == 0 {
		params["extra_float_digits"] = "2" // what the JDBC driver sends
	}
	return params, want
}

func escapeOption(v string) string { return strings.ReplaceAll(v, " ", `\ `) }

// checkReported compares what the session was told at login with what it asked for.
func (s *session) checkReported() error {
	for n, want := range s.want {
		if got := s.conn.Params[n]; got != want {
			return s.violate(wrongSetting, "%s was reported as %q at login, wanted %q", n, got, want)
		}
	}
	return nil
}

// settingsQuery reads all settings in one statement.
func (s *session) settingsQuery(t string) (sql string, values []string) {
	columns := []string{literal(t)}
	values = []string{t}
	for _, n := range append(slices.Clone(settingNames), "application_name") {
		columns, values = append(columns, "current_setting("+literal(n)+")"), append(values, s.want[n])
	}
	return "SELECT " + strings.Join(columns, ", "), values
}

// checkSettings compares the settings with what they should be: those of the session, not of whoever had the server
// connection before. Sometimes with SHOW.
func checkSettings(s *session) error {
	t := s.question()
	sql, values := s.settingsQuery(t)
	if s.rng.IntN(3) == 0 {
		n := settingNames[s.rng.IntN(len(settingNames))]
		return s.settings(n, []string{"T " + data(s.want[n]) + " C[SHOW] Z[I]"}, query("SHOW "+n))
	}
	return s.settings("the settings", []string{row(values...) + " Z[I]"}, query(sql))
}

// settings is ask for settings: the wrong answer is of another kind.
func (s *session) settings(what string, want []string, q pgproto3.FrontendMessage) error {
	if err := s.send(q); err != nil {
		return err
	}
	reply, err := s.collect(1, nil)
	got := &reply.Segments[0]
	if got.Text == want[0] {
		return err
	}
	if err == nil && len(got.Errors) == 0 {
		return s.violate(wrongSetting, "%s: got %s, wanted %s", what, got.Text, want[0])
	}
	d, verr := s.compare(got, want[0], err != nil)
	switch {
	case verr != nil:
		return verr
	case err != nil:
		return err
	case d != nil:
		return d
	}
	return nil
}

// changeSetting sets one for the rest of the session; the client sees it reported and finds it again wherever it goes.
func changeSetting(s *session) error {
	n, v := s.anotherValue()
	if err := s.ask([]string{"C[SET] Z[I]"}, query("SET "+n+" = "+literal(v))); err != nil {
		return err
	}
	s.want[n] = v
	if got := s.conn.Params[n]; got != v {
		return s.violate(wrongSetting, "%s was set to %q and reported as %q", n, v, got)
	}
	return s.again(checkSettings)
}

// changeSettingRolledBack sets one in a transaction that is rolled back, or for a transaction only.
func changeSettingRolledBack(s *session) error {
	n, v := s.anotherValue()
	local := []string{"", "LOCAL "}[s.rng.IntN(2)]
	end := "ROLLBACK"
	if local != "" && s.rng.IntN(2) == 0 {
		end = "COMMIT"
	}
	if err := s.ask([]string{"C[BEGIN] C[SET] Z[T]"}, query(fmt.Sprintf("BEGIN; SET %s%s = %s", local, n, literal(v)))); err != nil {
		return err
	}
	if err := s.ask([]string{"T " + data(v) + " C[SHOW] Z[T]"}, query("SHOW "+n)); err != nil {
		return err
	}
	if err := s.ask([]string{"C[" + end + "] Z[I]"}, query(end)); err != nil {
		return err
	}
	if got := s.conn.Params[n]; got != s.want[n] {
		return s.violate(wrongSetting, "%s is %q again, but was reported as %q", n, s.want[n], got)
	}
	return s.again(checkSettings)
}

func (s *session) anotherValue() (name, value string) {
	name = settingNames[s.rng.IntN(len(settingNames))]
	return name, choices[name][s.rng.IntN(len(choices[name]))]
}

// again does something at the end of an activity that has been done: a refusal of this part is none of the whole.
func (s *session) again(do func(*session) error) error {
	err := do(s)
	if _, ok := err.(*disturbed); ok { //nolint:errorlint // never wrapped
		return nil
	}
	return err
}
