package admin

import (
	"cmp"
	"net/netip"
	"slices"

	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/config"
)

// States of a client in ClientRow.State that mean something here.
const (
	login = "login"
	ended = "ended"
)

// unixAddr is what PgBouncer shows as the address of a Unix socket; its port is the one in the socket's name.
const unixAddr = "unix"

func socketTable() *table {
	return &table{columns: "ssssssisissiiississii", names: []string{"type", "user", "database", "replication", "state", "addr", "port",
		"local_addr", "local_port", "connect_time", "request_time", "wait", "wait_us", "close_needed", "ptr", "link",
		"remote_pid", "tls", "application_name", "prepared_statements", "id"}}
}

// showClients is SHOW CLIENTS. PgBouncer leaves clients that still log in out; here they have the state login. ptr and
// link are not addresses but ids: a client's link is the ptr of its server connection.
func showClients(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := clients(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	port := x.ops.Config().Fencepost.ListenPort
	t := socketTable()
	for i := range rows {
		r := &rows[i]
		if r.State == ended {
			continue
		}
		requested := r.Requested
		if requested.IsZero() {
			requested = r.Connected
		}
		remote, remotePort := address(r.Remote, port)
		local, localPort := address(r.Local, port)
		t.row("C", cmp.Or(r.User, "(nouser)"), cmp.Or(r.Database, "(nodb)"), "none", r.State, remote, remotePort, local, localPort,
			timestamp(r.Connected), timestamp(requested), whole(r.Wait), micros(r.Wait), 0, pointer(r.ID), pointer(r.Backend), 0, "",
			r.ApplicationName, 0, r.ID)
	}
	return t, nil
}

func address(a netip.AddrPort, port int) (string, int) {
	if !a.IsValid() {
		return unixAddr, port
	}
	return a.Addr().Unmap().String(), int(a.Port())
}

// serverStates are PgBouncer's names for the states of a server connection. used stands for one that is being cleaned
// after a client or being closed.
var serverStates = map[pool.State]string{pool.Dialling: "new", pool.Idle: "idle", pool.Leased: "active", pool.Cleaning: "used", pool.Closing: "used"}

// showServers is SHOW SERVERS. request_time is when the connection came into its present state. host, which PgBouncer has
// not, is the host of the shard that it goes to, also before it is connected and through a Unix socket.
func showServers(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	cl, err := clients(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	holders := map[uint64]uint64{}
	for i := range cl {
		if cl[i].Backend != 0 {
			holders[cl[i].Backend] = cl[i].ID
		}
	}
	type server struct {
		key lane.PoolKey
		lane.BackendRow
	}
	var all []server
	for i := range rows {
		for _, b := range rows[i].Backends {
			all = append(all, server{rows[i].Pool, b})
		}
	}
	slices.SortFunc(all, func(a, b server) int { return cmp.Compare(a.ID, b.ID) })
	t := socketTable()
	t.columns, t.names = t.columns+"s", append(t.names, "host")
	for i := range all {
		b := &all[i]
		state := serverStates[b.State]
		if beingCanceled(&b.BackendRow) {
			state = "being_canceled"
		}
		remotePort, localPort := int(b.RemotePort), int(b.LocalPort)
		if b.Remote == unixAddr {
			_, p := config.Host{Addr: b.Host}.HostPort()
			remotePort, localPort = int(p), int(p)
		}
		t.row("S", b.key.ServerUser, b.key.Database, "none", state, b.Remote, remotePort, b.Local, localPort,
			timestamp(b.Opened), timestamp(b.Since), 0, 0, b.Retiring || b.State == pool.Closing, pointer(b.ID), pointer(holders[b.ID]),
			uint64(b.PID), "", b.ApplicationName, 0, b.ID, orNull(b.Host))
	}
	return t, nil
}
