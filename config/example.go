package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const exampleHead = `# Fencepost's settings, all of them. This file is generated from the program and holds every key with its default;
# those without one, and those of databases and users, which inherit, are commented out. What is enough to start with:
#
#     [shards.main]
#     hosts = ["127.0.0.1:5432"]
#     [databases."*"]
#     shard = "main"
#     [users.app]
#     password = "the password of app"
#
# Check a file with: fencepost check -c FILE. Apply a changed one with SIGHUP or RELOAD in the console; keys that need a
# restart keep their value until then. Durations are strings with a unit (ms, s, m, h). A key that does not exist here is
# an error. More in docs/settings.md.
`

const exampleWidth = 110

// Example returns the complete commented settings file, which the repository holds as docs/fencepost.toml. It is valid.
func Example() string {
	var b strings.Builder
	b.WriteString(exampleHead)
	b.WriteString("\n[fencepost]\n")
	def := Default()
	def.EventLoop = LoopEpoll // the same text on every system, and commented out because the default is not
	values := reflect.ValueOf(&def).Elem()
	for _, s := range fencepostSettings {
		if s.group != "" {
			fmt.Fprintf(&b, "\n# --- %s ---\n", s.group)
		}
		exampleKey(&b, "fencepost", s, values.Field(s.index), s.key == "event_loop")
	}

	paragraph(&b, "\n", "A shard is a primary and its standbys, or one PostgreSQL server. Fencepost finds out which host is the primary and follows it. A shard may hold any number of databases. "+
		"Names: letters, digits, dots, dashes, underscores.")
	b.WriteString("[shards.main]\n")
	exampleSection(&b, "shards", shardSettings, reflect.TypeFor[Shard](), "hosts")

	paragraph(&b, "\n", `A database as clients name it. [databases."*"] is for every name that has no section of its own. `+
		"The names fencepost and pgbouncer are the console's.")
	b.WriteString("[databases.app]\n")
	exampleSection(&b, "databases", databaseSettings, reflect.TypeFor[Database](), "shard")

	paragraph(&b, "\n", "A user who may log in. Pool settings of a user win over those of the database, which win over [fencepost]; "+
		"a pool's user is the database's user if it has one, else the client's. "+
		`A password is written here, or as "file:PATH" (relative to this file) or "env:NAME".`)
	b.WriteString("[users.app]\n")
	exampleSection(&b, "users", userSettings, reflect.TypeFor[User](), "password")

	paragraph(&b, "\n", "Several Fencepost processes that share what they see of the hosts and pass cancels on. Without this "+
		"section a process is on its own.")
	b.WriteString("#[fleet]\n")
	exampleSection(&b, "fleet", fleetSettings, reflect.TypeFor[Fleet]())

	paragraph(&b, "\n", "Another process that cancels are passed on to, named by its peer_id. A fleet needs none of these.")
	b.WriteString("#[peers.2]\n")
	exampleSection(&b, "peers", peerSettings, reflect.TypeFor[Peer]())
	return b.String()
}

// exampleSection writes the keys of a section. Those in active and those with a default are settings, the others are
// commented out; with none in active the section is commented out as a whole, and so are all.
func exampleSection(b *strings.Builder, section string, settings []setting, of reflect.Type, active ...string) {
	into := reflect.New(of).Elem()
	for _, s := range settings {
		field := into.Field(s.index)
		text := s.example
		if s.hasDefault {
			text = s.def
		}
		if rule := setText(field, s, text); rule != "" {
			panic("config: example of " + s.key + " " + rule) // a tag of this package is wrong; a test makes the example
		}
		if s.group != "" {
			fmt.Fprintf(b, "\n# --- %s ---\n", s.group)
		}
		exampleKey(b, section, s, field, len(active) == 0 || !s.hasDefault && !slices.Contains(active, s.key))
	}
}

// exampleKey writes one key with its documentation.
func exampleKey(b *strings.Builder, section string, s setting, field reflect.Value, commented bool) {
	value := literal(field.Interface())
	var facts []string
	if s.hasDefault {
		facts = append(facts, "Default "+value+".")
	}
	if bounds := boundsOf(s, field); bounds != "" {
		facts = append(facts, bounds)
	}
	if s.reloadable {
		facts = append(facts, "Reloadable.")
	} else {
		facts = append(facts, "Needs a restart.")
	}
	paragraph(b, "\n", fieldDocs[section+"."+s.key])
	paragraph(b, "", strings.Join(facts, " "))
	if commented {
		b.WriteByte('#')
	}
	fmt.Fprintf(b, "%s = %s\n", s.key, value)
}

// boundsOf says which values a setting takes, with their unit.
func boundsOf(s setting, field reflect.Value) string {
	switch field.Interface().(type) {
	case int, int64, float64, Optional[int]:
		if s.unit != "" {
			return fmt.Sprintf("From %s to %s %s.", s.min, s.max, s.unit)
		}
		return fmt.Sprintf("From %s to %s.", s.min, s.max)
	case time.Duration, Optional[time.Duration]:
		return fmt.Sprintf("From %q to %q.", s.min, s.max)
	}
	return ""
}

// literal writes a value as TOML.
func literal(value any) string {
	switch v := value.(type) {
	case bool, int, int64, float64, Optional[int]:
		return formatValue(v)
	case []string:
		return "[" + quotedList(v) + "]"
	case []Host:
		addrs := make([]string, len(v))
		for i, h := range v {
			addrs[i] = h.Addr
		}
		return "[" + quotedList(addrs) + "]"
	case Secret:
		return strconv.Quote(v.Reveal()) // one of this package's examples
	}
	return strconv.Quote(formatValue(value))
}

// paragraph writes text as comment lines after the given start.
func paragraph(b *strings.Builder, start, text string) {
	b.WriteString(start)
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > exampleWidth {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
