package config

import (
	"slices"
	"strings"
)

// pgbouncerOnly are the settings of PgBouncer, by section, that this version does not have, with what to use instead
// where there is something. Without this list the nearest of our names would be suggested, which is another setting.
var pgbouncerOnly = map[string]map[string]string{
	"fencepost": withHints(`unix_socket_group user job_name conffile reserve_pool_size reserve_pool_timeout
		max_db_client_connections max_user_connections max_user_client_connections
		autodb_idle_timeout pool_idle_timeout server_reset_query_always application_name_add_host disable_pqexec
		server_check_query server_check_delay server_fast_close client_idle_timeout query_timeout query_wait_notify
		idle_transaction_timeout transaction_timeout suspend_timeout dns_max_ttl dns_nxdomain_ttl
		dns_zone_check_period resolv_conf auth_hba_file auth_ident_file auth_user auth_dbname auth_query
		auth_ldap_options scram_iterations client_tls_sslmode client_tls_key_file client_tls_cert_file
		client_tls_ca_file client_tls_protocols client_tls_ciphers client_tls13_ciphers client_tls_ecdhcurve
		client_tls_dheparams server_tls_sslmode server_tls_ca_file server_tls_key_file server_tls_cert_file
		server_tls_protocols server_tls_ciphers server_tls13_ciphers logfile syslog syslog_ident syslog_facility
		log_stats login_notify_message pkt_buf max_packet_size sbuf_loopcnt tcp_defer_accept tcp_socket_buffer`,
		map[string]string{
			"auth_file":           "list the users as [users.NAME]",
			"cancel_wait_timeout": "use cancel_ack_timeout",
			"verbose":             "use log_level",
		}),
	"databases": withHints(`auth_user auth_query auth_dbname reserve_pool_size reserve_pool connect_query
		load_balance_hosts max_db_client_connections client_encoding datestyle timezone application_name`,
		map[string]string{
			"host": `use hosts = ["HOST:PORT"]`,
			"port": `use hosts = ["HOST:PORT"]`,
		}),
	"users": withHints(`reserve_pool_size max_user_connections max_user_client_connections query_timeout
		idle_transaction_timeout transaction_timeout client_idle_timeout`, nil),
}

func withHints(names string, hints map[string]string) map[string]string {
	all := map[string]string{}
	for name := range strings.FieldsSeq(names) {
		all[name] = ""
	}
	for name, hint := range hints {
		all[name] = hint
	}
	return all
}

// unknownSetting is the rule for a key that the section does not have.
func unknownSetting(section, key string, known []setting) string {
	if hint, ok := pgbouncerOnly[section][key]; ok {
		if hint != "" {
			return "unknown key, instead of this setting of PgBouncer " + hint
		}
		return "unknown key, this version does not have this setting of PgBouncer"
	}
	names := make([]string, len(known))
	for i, s := range known {
		names[i] = s.key
	}
	if section != "fencepost" && slices.ContainsFunc(fencepostSettings, func(s setting) bool { return s.key == key }) {
		return "unknown key here, it belongs to [fencepost]"
	}
	if section != "shards" && slices.ContainsFunc(shardSettings, func(s setting) bool { return s.key == key && key != "hosts" }) {
		return "unknown key here, it belongs to [shards.NAME]"
	}
	return "unknown key" + didYouMean(key, names)
}

// didYouMean suggests the word that name was most likely meant to be, if there is one.
func didYouMean(name string, known []string) string {
	if near, ok := nearest(name, known); ok {
		return ", did you mean " + near + "?"
	}
	return ""
}

// nearest finds the word in known that name was most likely meant to be: one holds the other, or few letters differ.
func nearest(name string, known []string) (string, bool) {
	if len(name) > 2*maxName {
		return "", false // also bounds the work
	}
	name = strings.ToLower(name)
	for _, word := range known {
		if len(name) > 3 && strings.Contains(word, name) || len(word) > 3 && strings.Contains(name, word) {
			return word, true
		}
	}
	best, least := "", len(name)/3+2
	for _, word := range known {
		if d := distance(name, word); d < least {
			best, least = word, d
		}
	}
	return best, best != ""
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
