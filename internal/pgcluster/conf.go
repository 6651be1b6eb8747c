package pgcluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&b, "%s = %s\n", k, quote(conf[k]))
	}
	if err := n.appendFile("postgresql.conf", b.String()); err != nil {
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

// follow makes the stopped node a standby of primary from its next start on.
func (n *Node) follow(primary *Node) error {
	info := fmt.Sprintf("host=%s port=%d user=%s application_name=%s sslmode=disable", primary.Host, primary.Port, Superuser, n.Name)
	if err := n.appendFile("postgresql.conf", "primary_conninfo = "+quote(info)+"\n"); err != nil {
		return err
	}
	n.following = primary
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

func (n *Node) appendFile(name, text string) error {
	old, err := os.ReadFile(filepath.Join(n.DataDir, name))
	if err != nil {
		return err
	}
	return n.writeFile(name, string(old)+text)
}

func (n *Node) writeFile(name, text string) error {
	path := filepath.Join(n.DataDir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return n.c.as.own(path)
}
