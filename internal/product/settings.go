package product

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"strconv"

	"github.com/BurntSushi/toml"

	"fencepost/internal/pgcluster"
)

// Section is a section of a settings file, or what a key has in braces: keys with strings, numbers, bools or lists.
type Section = map[string]any

// Settings is a settings file: a Section for "fencepost" and "fleet", and for "shards", "databases", "users" and "peers" one
// with a Section for each name.
//
//	product.Settings{
//		"fencepost": {"pool_mode": "transaction"},
//		"shards":    {"main": product.Section{"hosts": product.AnyRole(server)}},
//		"databases": {"app": product.Section{"shard": "main"}},
//		"users":     {"app": product.Section{"password": "any"}},
//	}
type Settings map[string]Section

// AnyRole is a shard's hosts: one, which is not asked for its role.
func AnyRole(addr string) []Section { return []Section{{"addr": addr, "role": "any"}} }

// Add reads TOML and puts it over what there is, key by key.
func (s Settings) Add(text string) error {
	more := map[string]any{}
	if _, err := toml.Decode(text, &more); err != nil {
		return fmt.Errorf("settings %q: %w", text, err)
	}
	for name, section := range more {
		if s[name] == nil {
			s[name] = Section{}
		}
		merge(s[name], section.(Section))
	}
	return nil
}

func merge(into, more Section) {
	for k, v := range more {
		below, ok := into[k].(Section)
		if m, both := v.(Section); ok && both {
			merge(below, m)
		} else {
			into[k] = v
		}
	}
}

// Text is the file.
func (s Settings) Text() string {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(map[string]Section(s)); err != nil {
		panic(fmt.Sprintf("settings: %v", err)) // a value of a kind that no setting has
	}
	return b.String()
}

// place puts ports into settings that name none, and returns where clients and HTTP are served, "" for no HTTP.
func (s Settings) place() (addr, http string, err error) {
	own := maps.Clone(s["fencepost"])
	if own == nil {
		own = Section{}
	}
	s["fencepost"] = own
	def := func(key string, make func() (any, error)) {
		if _, given := own[key]; !given && err == nil {
			own[key], err = make()
		}
	}
	text := func(v string) func() (any, error) { return func() (any, error) { return v, nil } }
	def("listen_addr", text("127.0.0.1"))
	def("unix_socket_dir", text(""))
	def("listen_port", func() (any, error) { _, port, err := pgcluster.FreeAddr(); return port, err })
	def("admin_http", func() (any, error) { addr, _, err := pgcluster.FreeAddr(); return addr, err })
	if err != nil {
		return "", "", err
	}
	port, err := strconv.Atoi(fmt.Sprint(own["listen_port"]))
	return net.JoinHostPort(fmt.Sprint(own["listen_addr"]), strconv.Itoa(port)), fmt.Sprint(own["admin_http"]), err
}
