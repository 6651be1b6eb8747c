package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tracked are the parameters that Fencepost carries from client to backend.
var tracked = []string{"client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name", "IntervalStyle"}

// sees checks that the session runs with these values and was told so. Parameters that are not named have the server's
// defaults.
func (c *raw) sees(want map[string]string) error {
	defaults := map[string]string{"client_encoding": "UTF8", "DateStyle": "ISO, MDY", "TimeZone": "UTC",
		"standard_conforming_strings": "on", "application_name": "", "IntervalStyle": "postgres"}
	for _, name := range tracked {
		value, ok := want[name]
		if !ok {
			value = defaults[name]
		}
		got, err := c.query("SHOW " + name)
		if err != nil {
			return err
		}
		if got != value || c.params[name] != value {
			return fmt.Errorf("%s is %q, and the client was told %q; want %q", name, got, c.params[name], value)
		}
	}
	return nil
}

// Clients with different settings share one backend.
func TestSettingsAreCarried(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	at := l.transaction()
	wishes := []map[string]string{
		{},
		{"application_name": "plain"},
		{"application_name": `it's "a" \ test; SELECT 1 --`},
		{"client_encoding": "LATIN1", "TimeZone": "Asia/Tokyo"},
		{"DateStyle": "German, DMY", "IntervalStyle": "iso_8601"},
		{"standard_conforming_strings": "off", "application_name": `back\slash and 'quote'`},
		{"DateStyle": "SQL, DMY", "TimeZone": "America/St_Johns", "client_encoding": "WIN1252", "IntervalStyle": "sql_standard", "application_name": "all"},
		{"TimeZone": "<+05>-05"},
	}
	l.each(3*len(wishes), func(i int) error {
		wish := wishes[i%len(wishes)]
		var params []string
		for name, value := range wish {
			params = append(params, name, value)
		}
		c, err := at.login(params...)
		if err != nil {
			return err
		}
		defer c.close()
		for range 10 {
			if err := c.sees(wish); err != nil {
				return fmt.Errorf("%v: %w", wish, err)
			}
		}
		return nil
	})
}

// A setting changed by its client follows the client; one that is rolled back does not.
func TestSettingsFollowTheClient(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	atEach(t, l, func(t *testing.T, at place) {
		if at.name == "session" {
			return // one backend, two clients at once
		}
		other := mustLogin(t, at, "TimeZone", "Asia/Tokyo", "application_name", "other")
		c := mustLogin(t, at)
		step := func(sql string, want map[string]string) {
			t.Helper()
			if _, err := c.query(sql); err != nil {
				t.Fatal(err)
			}
			if err := other.sees(map[string]string{"TimeZone": "Asia/Tokyo", "application_name": "other"}); err != nil {
				t.Fatalf("another client after %s: %v", sql, err)
			}
			if err := c.sees(want); err != nil {
				t.Fatalf("after %s: %v", sql, err)
			}
		}
		step("SET TimeZone = 'Europe/Paris'", map[string]string{"TimeZone": "Europe/Paris"})
		step("SET datestyle TO sql, dmy; SET application_name = 'mine'", map[string]string{"TimeZone": "Europe/Paris", "DateStyle": "SQL, DMY", "application_name": "mine"})
		step("BEGIN; SET TimeZone = 'Europe/Rome'; ROLLBACK", map[string]string{"TimeZone": "Europe/Paris", "DateStyle": "SQL, DMY", "application_name": "mine"})
		step("BEGIN; SET LOCAL TimeZone = 'Europe/Rome'; COMMIT", map[string]string{"TimeZone": "Europe/Paris", "DateStyle": "SQL, DMY", "application_name": "mine"})
		step("BEGIN; SET TimeZone = 'Europe/Rome'; SAVEPOINT a; SET DateStyle = 'ISO, YMD'; ROLLBACK TO a; COMMIT", map[string]string{"TimeZone": "Europe/Rome", "DateStyle": "SQL, DMY", "application_name": "mine"})
		step("SELECT set_config('TimeZone', 'Europe/Oslo', false)", map[string]string{"TimeZone": "Europe/Oslo", "DateStyle": "SQL, DMY", "application_name": "mine"})
		step("SET application_name = ''", map[string]string{"TimeZone": "Europe/Oslo", "DateStyle": "SQL, DMY"})
		step("RESET ALL", nil)
		// Rolled back by an error, over several messages.
		talk := conversation{
			{script(query("BEGIN")), "C[BEGIN] Z[T]"}, {script(query("SET TimeZone = 'Europe/Kyiv'")), "C[SET] Z[T]"},
			{script(query("SELECT 1/0")), "T E[22012] Z[E]"}, {script(query("COMMIT")), "C[ROLLBACK] Z[I]"},
		}
		talk[2].want = "E[22012] Z[E]"
		if err := c.hold(talk); err != nil {
			t.Fatal(err)
		}
		step("SELECT 1", nil)
	})
}

// What the client is told at login is what holds, on every version.
func TestToldAtLogin(t *testing.T) {
	t.Parallel()
	for _, version := range versions(t, "14", "18") {
		l := newLab(t, version)
		l.sql("ALTER DATABASE " + l.db + " SET DateStyle = 'SQL, DMY'")
		var direct []string
		atEach(t, l, func(t *testing.T, at place) {
			c := mustLogin(t, at)
			told := c.settings()
			slices.Sort(told)
			if at.name == "direct" {
				direct = told
			}
			if !slices.Equal(told, direct) {
				t.Errorf("told\n%s\nthe server itself tells\n%s", strings.Join(told, "\n"), strings.Join(direct, "\n"))
			}
			for name, value := range c.params {
				got, err := c.query("SHOW " + name)
				check(t, name, got, err, value)
			}
		})
	}
}

// A value that the server does not take ends the session of who asked for it, with the server's error, and nobody else's.
func TestInvalidSettingAtStartup(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	for _, p := range [][2]string{{"TimeZone", "Nowhere/Land"}, {"client_encoding", "klingon"}, {"DateStyle", "x"}, {"IntervalStyle", "'"}} {
		atEach(t, l, func(t *testing.T, at place) {
			c := mustDial(t, at.addr)
			got, err := c.startup(version30, "user", anyUser, "database", at.database, p[0], p[1])
			if got == "R[0] Z[I]" { // told with the first query
				got, err = c.exchange(1, query("SELECT 1"))
			}
			check(t, p[0]+"="+p[1], strings.TrimPrefix(got, "R[0] "), err, "E[22023] EOF")
			c = mustLogin(t, at)
			if err := c.sees(nil); err != nil {
				t.Errorf("another client after %s: %v", p[0], err)
			}
			c.close()
		})
	}
	l.atRest()
	l.whole(l.transaction(), 1)
}

// Encodings: the same text, in the encoding of each client.
func TestEncodings(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	texts := map[string]string{"UTF8": "gr\u00fc\u00df", "LATIN1": "gr\xfc\xdf", "WIN1252": "gr\xfc\xdf"}
	at := l.transaction()
	l.each(9, func(i int) error {
		encoding := []string{"UTF8", "LATIN1", "WIN1252"}[i%3]
		c, err := at.login("client_encoding", encoding)
		if err != nil {
			return err
		}
		defer c.close()
		for range 20 {
			text := texts[encoding]
			err := c.hold(conversation{{script(query("SELECT length('" + text + "'), '" + text + "'")), "T D[4|" + text + "] C[SELECT 1] Z[I]"}})
			if err != nil {
				return fmt.Errorf("%s: %w", encoding, err)
			}
		}
		return nil
	})
}

// Field case 1.03: what one client has set for its session, another does not get.
func TestReadOnlyStaysWithItsClient(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 3", `track_extra_parameters = ["IntervalStyle", "default_transaction_read_only"]`)
	l.sql("CREATE TABLE written (n int)", "GRANT ALL ON written TO PUBLIC")
	for _, at := range []place{l.session(), l.transaction()} {
		l.each(3, func(int) error {
			c, err := at.login()
			if err != nil {
				return err
			}
			defer c.close()
			return c.hold(conversation{{script(query("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")), "C[SET] Z[I]"},
				{script(query("INSERT INTO written VALUES (1)")), "E[25006] Z[I]"}})
		})
		l.each(60, func(int) error {
			return converse(at, conversation{{script(query("INSERT INTO written VALUES (1)")), "C[INSERT 0 1] Z[I]"}})
		})
	}
}
