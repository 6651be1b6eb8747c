package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// reader turns the bytes of one file into a Config and collects what is wrong with them.
type reader struct {
	path     string
	data     []byte
	secrets  secretSource
	file     map[string]any
	problems []Problem
	warnings []Problem
}

// problem notes that the value at path breaks rule. value is shown unless it is nil.
func (r *reader) problem(rule string, value any, path ...string) {
	r.problems = append(r.problems, newProblem(rule, value, path))
}

// warn notes that the value at path has an effect that hardly anybody wants.
func (r *reader) warn(rule string, value any, path ...string) {
	r.warnings = append(r.warnings, newProblem(rule, value, path))
}

func newProblem(rule string, value any, path []string) Problem {
	p := Problem{Key: toml.Key(path).String(), Rule: rule, path: path}
	if value != nil {
		p.Value = writtenValue(value)
	}
	if strings.Contains(p.Value, "://") || strings.Contains(p.Value, "password") {
		p.Value = "" // a connection string, maybe with a password
	}
	return p
}

// sections are the tables of a file.
var sections = []string{"fencepost", "shards", "databases", "users", "fleet", "peers"}

// read decodes and validates everything. The result is meaningful only if no problem was found.
func (r *reader) read() *Config {
	c := &Config{
		Path: r.path, Fencepost: Default(),
		Shards: map[string]*Shard{}, Databases: map[string]*Database{}, Users: map[string]*User{}, Peers: map[int]*Peer{},
	}
	if _, err := toml.Decode(string(r.data), &r.file); err != nil {
		r.problems = append(r.problems, syntaxProblem(r.data, err))
		return c
	}
	for _, name := range sortedKeys(r.file) {
		if !slices.Contains(sections, name) {
			r.problem("unknown section"+didYouMean(name, sections), nil, name)
		}
	}
	if raw, ok := r.file["fencepost"]; ok {
		if table, ok := r.table(raw, "fencepost"); ok {
			r.section(&c.Fencepost, fencepostSettings, table, "fencepost")
		}
	}
	for name, table := range r.named("shards") {
		c.Shards[name] = DefaultShard(name)
		r.section(c.Shards[name], shardSettings, table, "shards", name)
	}
	for name, table := range r.named("databases") {
		c.Databases[name] = &Database{Name: name}
		r.section(c.Databases[name], databaseSettings, table, "databases", name)
	}
	for name, table := range r.named("users") {
		c.Users[name] = &User{Name: name}
		r.section(c.Users[name], userSettings, table, "users", name)
	}
	r.readFleet(c)
	r.validate(c)
	r.warnOfFleet(c)
	return c
}

// table returns raw as a table or notes a problem. The value is not shown: it may be a connection string or a password.
func (r *reader) table(raw any, path ...string) (map[string]any, bool) {
	table, ok := raw.(map[string]any)
	if !ok {
		r.problem("must be a section: ["+toml.Key(path).String()+"]", nil, path...)
	}
	return table, ok
}

// named returns the tables below a section such as [databases], by name.
func (r *reader) named(section string) map[string]map[string]any {
	found := map[string]map[string]any{}
	raw, ok := r.file[section]
	if !ok {
		return found
	}
	all, ok := raw.(map[string]any)
	if !ok {
		r.problem("must be sections: ["+section+".NAME]", nil, section)
		return found
	}
	for _, name := range sortedKeys(all) {
		if table, ok := r.table(all[name], section, name); ok {
			found[name] = table
		}
	}
	return found
}

// section decodes one table into the struct that dst points to.
func (r *reader) section(dst any, known []setting, table map[string]any, path ...string) {
	into := reflect.ValueOf(dst).Elem()
	for _, key := range sortedKeys(table) {
		at := append(slices.Clone(path), key)
		i := slices.IndexFunc(known, func(s setting) bool { return s.key == key })
		if i < 0 {
			r.problem(unknownSetting(path[0], key, known), nil, at...)
			continue
		}
		r.value(into.Field(known[i].index), known[i], table[key], at)
	}
}

// value decodes one value into its field.
func (r *reader) value(field reflect.Value, s setting, raw any, at []string) {
	switch p := field.Addr().Interface().(type) {
	case *Secret:
		written, ok := raw.(string)
		if !ok {
			r.problem("must be a string", nil, at...)
			return
		}
		secret, rule := resolveSecret(written, r.secrets)
		if rule != "" {
			r.problem(rule, nil, at...)
		}
		*p = secret
	case *[]Host:
		*p = r.hosts(raw, at)
	default:
		if rule := setValue(field, s, raw); rule != "" {
			r.problem(rule, raw, at...)
		} else if rule := formRule(s.key, formatValue(field.Interface()), field.Interface()); rule != "" {
			r.problem(rule, raw, at...)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
