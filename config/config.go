// Package config reads Fencepost's settings file (fencepost.toml) and answers what holds for a database and a user.
//
// The settings are the fields of Fencepost, Shard, Database, User, Fleet and Peer. A field's comment and tags are the
// single source of its meaning, key, unit, default, range and reloadability: decoding, validation, SHOW CONFIG (Rows),
// reload (Changes, Reloaded) and the commented example file (Example) are all derived from them.
//
// Tags: key (the TOML key), default (as it would be written, without quotes; absent: inherited or none), min and max
// (inclusive, in the field's type), unit (where the type does not say it), reload ("yes", or "restart" when only a new
// process applies a change), example (the value Example shows where there is no default), group (the heading in Example
// that begins here).
//
// Nothing is ever corrected: a file either holds, or Load returns every problem in it.
package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config is one settings file, complete and valid. It is immutable once loaded and may be shared by any goroutine.
type Config struct {
	// Path of the file as given to Load.
	Path string
	// Fencepost is the section [fencepost], defaults filled in.
	Fencepost Fencepost
	// Shards by name: the sections [shards.NAME] and one for each distinct list of hosts written in a database. The
	// names of the latter are made of their hosts and always contain a colon, which a written name never does.
	Shards map[string]*Shard
	// Databases by name as clients ask for it; "*" applies to every name that is not listed. Use Config.Database.
	Databases map[string]*Database
	// Users by name. Empty is possible only with auth_type = "trust".
	Users map[string]*User
	// Fleet is the section [fleet]; nil: none.
	Fleet *Fleet
	// Peers by peer_id: the sections [peers.NUMBER].
	Peers map[int]*Peer

	warnings []Problem
}

// Load reads and validates the file at path and resolves its secrets. The error is a *Problems that lists everything
// wrong with the contents, or wraps the error of reading the file. It blocks on the disk only.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return Parse(path, data)
}

// Parse is Load for contents already in memory. path is used in messages, and its directory is where relative paths of
// secrets ("file:…") begin.
func Parse(path string, data []byte) (*Config, error) {
	return parse(path, data, osSecrets{dir: filepath.Dir(path)})
}

func parse(path string, data []byte, secrets secretSource) (*Config, error) {
	r := reader{path: path, data: data, secrets: secrets}
	c := r.read()
	if len(r.problems) > 0 {
		return nil, &Problems{Path: path, List: r.inOrder(r.problems)}
	}
	c.warnings = r.inOrder(r.warnings)
	return c, nil
}
