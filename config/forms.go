package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxName       = 63  // bytes of a role's or database's name, as NAMEDATALEN
	maxSocketPath = 107 // bytes of sockaddr_un's sun_path without its end
)

var (
	hostname      = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	shardName     = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)
	md5Secret     = regexp.MustCompile(`^md5[0-9a-f]{32}$`)
	scramSecret   = regexp.MustCompile(`^SCRAM-SHA-256\$[1-9][0-9]{0,8}:[A-Za-z0-9+/]+={0,2}\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$`)
)

const scramPrefix = "SCRAM-SHA-256$"

func isMD5(secret string) bool { return md5Secret.MatchString(secret) }

// secretRule says what is wrong with a secret whatever it is used for.
func secretRule(secret string) string {
	switch {
	case secret == "":
		return "must not be empty; leave it out for none"
	case strings.ContainsRune(secret, 0):
		return "must not contain a zero byte"
	case strings.HasPrefix(secret, scramPrefix) && !scramSecret.MatchString(secret):
		return "begins like a SCRAM verifier but is not a whole one (SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey)"
	}
	return ""
}

// formRule checks the values whose form their type does not say, by key.
func formRule(key, text string, value any) string {
	switch key {
	case "listen_addr":
		return listenRule(text)
	case "unix_socket_dir":
		return socketDirRule(text)
	case "admin_http":
		return httpRule(text)
	case "tcp_keepidle", "tcp_keepintvl":
		if value.(time.Duration)%time.Second != 0 {
			return "must be whole seconds"
		}
	case "tcp_user_timeout":
		if value.(time.Duration)%time.Millisecond != 0 {
			return "must be whole milliseconds"
		}
	case "ignore_startup_parameters", "track_extra_parameters":
		for _, name := range value.([]string) {
			if !parameterName.MatchString(name) {
				return fmt.Sprintf("must name parameters of PostgreSQL, which %q cannot be", name)
			}
		}
	case "shard":
		if text == "" {
			return "must not be empty"
		}
	case "dbname", "monitor_dbname", "user", "monitor_user":
		return nameRule(text)
	}
	return ""
}

// nameRule checks the name of a database or a user. A longer one would be found by no client: what a client names is cut as
// PostgreSQL cuts it.
func nameRule(name string) string {
	rule := labelRule(name, maxName)
	if rule != "" && len(name) > maxName {
		rule += "; PostgreSQL keeps no more of it"
	}
	return rule
}

// labelRule checks any name.
func labelRule(name string, most int) string {
	if name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Sprintf("must be a name of 1 to %d bytes without control characters", most)
	}
	return ""
}

func isHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || len(host) <= 253 && hostname.MatchString(host)
}

func listenRule(list string) string {
	if list == "" || list == "*" {
		return ""
	}
	for word := range strings.SplitSeq(list, ",") {
		if !isHost(strings.TrimSpace(word)) {
			return `must be "*", "" or addresses separated by commas (the port is listen_port)`
		}
	}
	return ""
}

func socketDirRule(dir string) string {
	if dir != "" && dir[0] != '/' && (dir[0] != '@' || dir == "@") {
		return `must be an absolute path, "" or, in the abstract namespace, "@" and a name`
	}
	if len(dir)+len("/.s.PGSQL.65535") > maxSocketPath {
		return fmt.Sprintf("must be shorter: a socket's path has at most %d bytes", maxSocketPath)
	}
	return ""
}

func httpRule(addr string) string {
	if addr == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && !isHost(host) || !isPort(port) {
		return `must be "host:port", ":port" for all addresses or "" for none`
	}
	return ""
}

func isPort(digits string) bool {
	n, err := strconv.ParseUint(digits, 10, 16)
	return err == nil && n > 0
}

// parseAddr makes the Addr of a Host from how it is written.
func parseAddr(written string) (addr string, ok bool) {
	host, digits := splitAddr(written)
	if digits == "" {
		if strings.HasSuffix(written, ":") && !strings.HasSuffix(written, "::") {
			return "", false
		}
		digits = strconv.Itoa(defaultPort)
	}
	if !isPort(digits) {
		return "", false
	}
	if strings.HasPrefix(host, "/") {
		ok = len(host)+len("/.s.PGSQL.65535") <= maxSocketPath && !strings.ContainsRune(host, 0)
		return host + ":" + digits, ok
	}
	return net.JoinHostPort(host, digits), isHost(host)
}
