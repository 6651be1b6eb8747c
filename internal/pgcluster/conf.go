package pgcluster

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// configure appends our settings to postgresql.conf and replaces pg_hba.conf.
func (n *Node) configure() error {
	conf := map[string]string{
		"listen_addresses":        n.Host,
		"port":                    strconv.Itoa(n.Port),
		"unix_socket_directories": n.SocketDir,
		"cluster_name":            n.Name,
		// Tests kill servers, not machines: the kernel keeps what was written.
		"fsync":            "off",
		"full_page_writes": "off",
		// A killed server then leaves nothing outside its data directory but a System V segment.
		"dynamic_shared_memory_type":  "mmap",
		"shared_buffers":              "32MB",
		"max_connections":             "100",
		"jit":                         "off",
		"wal_level":                   "replica",
		"hot_standby":                 "on",
		"max_wal_senders":             "10",
		"wal_retrieve_retry_interval": "100ms",
		"timezone":                    "UTC",
		"log_timezone":                "UTC",
		"log_line_prefix":             "%m [%p] %q%u@%d ",
		"logging_collector":           "off",
		"log_destination":             "stderr",
	}
	if n.major() >= 13 {
		conf["wal_keep_size"] = "256MB"
	} else {
		conf["wal_keep_segments"] = "16"
	}
	maps.Copy(conf, n.c.opts.Conf)
	if err := n.appendFile("postgresql.conf", settings(conf)); err != nil {
		return err
	}
	auth := n.c.opts.Auth
	if auth == "" {
		auth = "trust"
	}
	hba := append(slices.Clone(n.c.opts.HBA),
		"local all,replication all trust",
		"host replication "+Superuser+" 127.0.0.1/32 trust",
		"host all all 127.0.0.1/32 "+auth)
	return n.writeFile("pg_hba.conf", strings.Join(hba, "\n")+"\n")
}

// Configure adds settings to the node's postgresql.conf, unquoted, and has a running server read it again. Those that
// need a restart take effect at the next one. Rebuild replaces them by those of the server that is copied, and these by
// the ones of Options.
func (n *Node) Configure(conf map[string]string) error {
	if err := n.appendFile("postgresql.conf", settings(conf)); err != nil || !n.Running() {
		return err
	}
	return n.signal(syscall.SIGHUP)
}

// settings writes lines of postgresql.conf.
func settings(conf map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&b, "%s = %s\n", k, quote(conf[k]))
	}
	return b.String()
}

// follow makes the stopped node a standby of primary from its next start on.
func (n *Node) follow(primary *Node) error {
	host, port, err := net.SplitHostPort(primary.upstream)
	if err != nil {
		return fmt.Errorf("%s follows %s: %w", n.Name, primary.Name, err)
	}
	info := fmt.Sprintf("host=%s port=%s user=%s application_name=%s sslmode=disable", host, port, Superuser, n.Name)
	if err := n.appendFile("postgresql.conf", "primary_conninfo = "+quote(info)+"\n"); err != nil {
		return err
	}
	n.following = primary
	if n.c.primary == n {
		n.c.primary = primary
	}
	return n.writeFile("standby.signal", "")
}

// major is the data directory's major version.
func (n *Node) major() int {
	b, err := os.ReadFile(filepath.Join(n.DataDir, "PG_VERSION"))
	if err != nil {
		return 0
	}
	v, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return v
}

// appendFile adds to a file in one piece: the server may be reading it.
func (n *Node) appendFile(name, text string) error {
	f, err := os.OpenFile(filepath.Join(n.DataDir, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (n *Node) writeFile(name, text string) error {
	path := filepath.Join(n.DataDir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return n.c.as.own(path)
}
