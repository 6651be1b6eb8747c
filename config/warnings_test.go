package config

import (
	"slices"
	"strings"
	"testing"
)

// What keeps one user from logging in is said, and keeps nobody else from it.
func TestWarningsOfLogins(t *testing.T) {
	const hash = "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing to say": {rest, nil},
		"no password": {rest + "[users.b]\npool_size = 2\n", []string{
			`7 users.b.password: is not set: this user's logins are refused (auth_type "scram-sha-256")`}},
		"no password, whatever the method": {"[fencepost]\nauth_type = \"md5\"\n" + rest + "[users.b]\n", []string{
			`9 users.b.password: is not set: this user's logins are refused (auth_type "md5")`}},
		"md5 under scram": {rest + "[users.b]\npassword = \"" + hash + "\"\n", []string{
			`8 users.b.password: is an md5 hash: this user's logins are refused, for auth_type "scram-sha-256" needs a password or a SCRAM verifier`}},
		"md5 under md5": {"[fencepost]\nauth_type = \"md5\"\n" + rest + "[users.b]\npassword = \"" + hash + "\"\n", nil},
		"admins and observers": {"[fencepost]\nadmin_users = [\"app\", \"ops\"]\nstats_users = [\"grafana\"]\n" + rest, []string{
			`2 fencepost.admin_users = ["app", "ops"]: names "ops", whose logins are refused: there is no section [users.NAME] for it (auth_type "scram-sha-256")`,
			`3 fencepost.stats_users = ["grafana"]: names "grafana", whose logins are refused: there is no section [users.NAME] for it (auth_type "scram-sha-256")`}},
		"trust": {"[fencepost]\nauth_type = \"trust\"\nadmin_users = [\"ops\"]\n" + rest + "[users.b]\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("f.toml", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range c.Warnings() {
				got = append(got, strings.Join([]string{formatValue(w.Line), w.String()}, " "))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
