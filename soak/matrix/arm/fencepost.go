package arm

import (
	"context"
	"syscall"

	"fencepost/internal/product"
	"fencepost/internal/program"
)

// admin is the console's user.
const admin = "operator"

func (r *Running) startFencepost(ctx context.Context, s *Setup) error {
	return r.launchFencepost(ctx, s, s.Programs.Fencepost, product.Section{"shard": "main"})
}

// startControl: no fence, for a fence alone would find the wrong server out.
func (r *Running) startControl(ctx context.Context, s *Setup) error {
	return r.launchFencepost(ctx, s, s.Programs.Control, product.Section{"shard": "main", "fence": "off"}, "-without", "election", "-c")
}

// launchFencepost starts either. What is not in its settings has its default.
func (r *Running) launchFencepost(ctx context.Context, s *Setup, binary string, database product.Section, args ...string) error {
	dir, err := program.Folder(s.Dir, r.Name, nil)
	if err != nil {
		return err
	}
	var hosts []string
	for _, h := range s.Hosts {
		hosts = append(hosts, h.Addr)
	}
	f, err := product.Start(ctx, product.Config{Name: r.Name, Program: binary, Args: args, Dir: dir, Settings: product.Settings{
		"fencepost": {"auth_type": "trust", "admin_users": []string{admin}, "pool_mode": s.mode(), "default_pool_size": s.Pool,
			"log_connections": false, "log_disconnections": false},
		"shards":    {"main": product.Section{"hosts": hosts, "monitor_user": s.User, "failover_warm": s.Warm}},
		"databases": {s.Database: database},
	}})
	if err != nil {
		return err
	}
	r.runs(f.Process(), syscall.SIGINT)
	r.Version = version(s.Programs.Fencepost, "version")
	r.fencepost, r.watcher = f, watch(f)
	r.ends = append(r.ends, r.watcher.close)
	return r.connectTo(s, "", f.Addr)
}
