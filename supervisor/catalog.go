package supervisor

import (
	"strings"
	"sync"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/auth"
	"fencepost/config"
	"fencepost/pgerr"
)

// snapshot turns settings into what logins need, and counts the files that they ask for.
func (s *Fencepost) snapshot(cfg *config.Config) *frontend.Settings {
	f := &cfg.Fencepost
	method, err := auth.ParseMethod(string(f.AuthType))
	if err != nil { // config has checked it: fail closed
		s.log.Error().Err(err).Msg("auth_type")
		method = auth.SCRAM
	}
	secrets := map[string]*auth.Secret{}
	for name, u := range cfg.Users {
		secret, err := auth.ParseSecret(name, u.Password.Reveal())
		if err != nil {
			s.log.Error().Err(err).Str("user", name).Msg("secret")
			continue
		}
		secrets[name] = secret
	}
	derive(method, secrets)
	s.files.Store(filesOf(cfg))
	s.shards = s.handles(cfg)
	r := &routes{s: s, cfg: cfg, shards: s.shards, known: map[[2]string]*frontend.Route{}}
	return &frontend.Settings{
		MaxClients: f.MaxClientConn, Method: method, Auth: auth.ProfileOf(method, valuesOf(secrets)),
		Secret: func(user string) *auth.Secret { return secrets[user] },
		Route:  r.route, Ignore: set(f.IgnoreStartupParameters, strings.ToLower), Admins: set(f.AdminUsers, nil), Stats: set(f.StatsUsers, nil),
		MaxStatements: f.MaxPreparedStatements, PeerID: uint16(f.PeerID), LogConnections: f.LogConnections, LogDisconnects: f.LogDisconnections, LogErrors: f.LogPoolerErrors,
	}
}

// derive computes what SCRAM needs of plaintext passwords ahead of the first login, on a goroutine that ends with it.
func derive(m auth.Method, secrets map[string]*auth.Secret) {
	var slow []*auth.Secret
	for _, s := range secrets {
		if !s.Ready(m) {
			slow = append(slow, s)
		}
	}
	if len(slow) > 0 {
		go func() {
			for _, s := range slow {
				s.Derive(m)
			}
		}()
	}
}

func valuesOf(m map[string]*auth.Secret) func(func(*auth.Secret) bool) {
	return func(yield func(*auth.Secret) bool) {
		for _, s := range m {
			if !yield(s) {
				return
			}
		}
	}
}

func set(names []string, fold func(string) string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		if fold != nil {
			n = fold(n)
		}
		m[n] = true
	}
	return m
}

// routes finds the pool of a client; what was found once is kept for the life of the snapshot.
type routes struct {
	s      *Fencepost
	cfg    *config.Config
	shards map[string]*shard.Shard
	mu     sync.Mutex // guards known
	known  map[[2]string]*frontend.Route
}

// maxRoutes bounds the memory of names that clients make up (with "*" and trust).
const maxRoutes = 10000

func (r *routes) route(database, user string) (*frontend.Route, *pgerr.Error) {
	key := [2]string{database, user}
	r.mu.Lock()
	found := r.known[key]
	r.mu.Unlock()
	if found != nil {
		return found, nil
	}
	db, ok := r.cfg.Database(database)
	if !ok {
		return nil, pgerr.NoSuchDatabase(database)
	}
	serverUser, password := r.cfg.ServerLogin(db, user)
	found = &frontend.Route{Pool: lane.PoolKey{Database: database, ServerUser: serverUser}, Target: targets[db.Target]}
	found.Spec, found.Mode = r.spec(db, serverUser, password.Reveal())
	r.mu.Lock()
	defer r.mu.Unlock()
	if again := r.known[key]; again != nil {
		return again, nil
	}
	if len(r.known) < maxRoutes {
		r.known[key] = found
	}
	return found, nil
}

var targets = map[config.Target]lane.Target{config.TargetReadWrite: lane.ReadWrite, config.TargetStandby: lane.Standby,
	config.TargetPreferStandby: lane.PreferStandby, config.TargetAny: lane.Any}

var fences = map[config.Fence]lane.FenceMode{config.FenceAuto: lane.FenceAuto, config.FenceAlways: lane.FenceAlways, config.FenceOff: lane.FenceOff}

func (r *routes) spec(db *config.Database, serverUser, password string) (*lane.PoolSpec, frontend.Mode) {
	f := &r.cfg.Fencepost
	p := r.cfg.PoolSettings(db, serverUser)
	lifetime := p.ServerLifetime
	if lifetime == 0 {
		lifetime = time.Nanosecond // one use
	}
	spec := &lane.PoolSpec{
		Shard: r.shards[db.Shard], Size: p.Size, DBLimit: p.MaxDBConnections, DBName: db.DBName, Source: backend.FixedPassword(password),
		Auto: r.cfg.Databases[db.Name] == nil, Dial: f.ServerConnectTimeout, WaitLimit: p.QueryWaitTimeout, Mode: string(p.Mode), Tune: tune(f), Fence: fences[p.Fence],
		Limits: pool.Config{MinSize: p.MinSize, IdleTimeout: f.ServerIdleTimeout, Lifetime: lifetime, RetryMax: f.ServerLoginRetry,
			Concurrency: r.cfg.Shards[db.Shard].ConnectConcurrency, RoundRobin: f.ServerRoundRobin, PoolSize: p.Size},
	}
	switch p.Mode {
	case config.PoolSession:
		spec.ResetQuery, spec.Session = f.ServerResetQuery, true
		return spec, frontend.Session
	case config.PoolStatement:
		return spec, frontend.Statement
	}
	return spec, frontend.Transaction
}

// specFor finds the present spec of a pool that exists, nil if its database is gone.
func (r *routes) specFor(key lane.PoolKey) *lane.PoolSpec {
	db, ok := r.cfg.Database(key.Database)
	if !ok {
		return nil
	}
	_, password := r.cfg.ServerLogin(db, key.ServerUser)
	spec, _ := r.spec(db, key.ServerUser, password.Reveal())
	return spec
}

// ensurePools makes the lanes of pools that are to keep backends open although no client has come: those of databases
// with a user of their own.
func (s *Fencepost) ensurePools(cfg *config.Config) {
	for name, db := range cfg.Databases {
		if name == "*" || db.User == "" {
			continue
		}
		r, err := s.settings.Load().Route(name, db.User)
		if err == nil && r.Spec.Limits.MinSize > 0 {
			s.system.Root.Send(s.tree.lanes[0], &lane.Ensure{Pool: r.Pool, Spec: r.Spec})
		}
	}
}
