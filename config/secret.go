package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unique"
)

// Secret is a password or a verifier. It is written in the settings as it is, as "file:PATH" (the file's contents
// without the final line end) or as "env:NAME" (an environment variable), and resolved when the settings are loaded.
// Every way of printing it shows only whether it is set. The zero value is not set. Secrets may be compared with ==.
type Secret struct {
	// A pointer, because a wrong verb makes fmt print fields without asking Format; interned, so that == compares values.
	value unique.Handle[string]
}

const hidden = "(hidden)"

// NewSecret returns a Secret that holds value as it is.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: unique.Make(value)}
}

// Reveal returns the secret itself, "" when it is not set. The caller must neither log nor keep it in anything printed.
func (s Secret) Reveal() string {
	if !s.IsSet() {
		return ""
	}
	return s.value.Value()
}

// IsSet reports whether there is a secret.
func (s Secret) IsSet() bool { return s != Secret{} }

// String returns "(hidden)", or "" when the secret is not set.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return hidden
}

// Format implements fmt.Formatter, so that no verb prints the secret.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText implements encoding.TextMarshaler, so that no encoder writes the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// plaintext reports whether the secret is a password and not a verifier PostgreSQL would store.
func (s Secret) plaintext() bool {
	return s.IsSet() && !isMD5(s.Reveal()) && !strings.HasPrefix(s.Reveal(), scramPrefix)
}

// secretSource fetches what a Secret refers to.
type secretSource interface {
	file(path string) (string, error)
	env(name string) (string, bool)
}

// osSecrets is the secretSource of a running process. Relative paths begin in dir.
type osSecrets struct{ dir string }

// maxSecretFile bounds what is read for a secret: nobody can send a longer password.
const maxSecretFile = 64 << 10

func (o osSecrets) file(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.dir, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSecretFile {
		return "", errors.New("file is larger than 64 KiB")
	}
	return string(b), nil
}

// reason is an error without the path, which stands in the message already.
func reason(err error) string {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

func (o osSecrets) env(name string) (string, bool) { return os.LookupEnv(name) }

// resolveSecret turns what is written in the settings into a Secret. rule says what is wrong, without the secret.
func resolveSecret(written string, from secretSource) (s Secret, rule string) {
	value, origin := written, ""
	if path, ok := strings.CutPrefix(written, "file:"); ok {
		origin = fmt.Sprintf("the file %q", path)
		contents, err := from.file(path)
		if err != nil {
			return s, origin + " cannot be read: " + reason(err)
		}
		value = strings.TrimSuffix(strings.TrimSuffix(contents, "\n"), "\r")
	} else if name, ok := strings.CutPrefix(written, "env:"); ok {
		if name == "" {
			return s, "must name an environment variable after env:"
		}
		origin = fmt.Sprintf("the environment variable %q", name)
		if value, ok = from.env(name); !ok {
			return s, origin + " is not set"
		}
	}
	if value == "" && origin != "" {
		return s, origin + " is empty"
	}
	return NewSecret(value), secretRule(value)
}
