package config

// PoolMode says when a backend goes back to its pool. Empty in a Database or User: inherited.
type PoolMode string

// The pool modes.
const (
	PoolSession     PoolMode = "session"     // when the client leaves
	PoolTransaction PoolMode = "transaction" // at the end of each transaction
	PoolStatement   PoolMode = "statement"   // after each statement
)

// AuthType says how clients prove who they are.
type AuthType string

// The authentication methods.
const (
	AuthTrust    AuthType = "trust"
	AuthPassword AuthType = "password"
	AuthMD5      AuthType = "md5"
	AuthSCRAM    AuthType = "scram-sha-256"
)

// EventLoopKind names an implementation of package eventloop; the values are those of eventloop.Kind.
type EventLoopKind string

// The event loops.
const (
	LoopEpoll    EventLoopKind = "epoll"
	LoopPortable EventLoopKind = "portable"
)

// SigtermAction says what the first SIGTERM does.
type SigtermAction string

// The meanings of SIGTERM.
const (
	SigtermDrain          SigtermAction = "drain"
	SigtermWaitForClients SigtermAction = "wait_for_clients"
)

// LogLevel is the least level that is logged; the values are zerolog's.
type LogLevel string

// The log levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogFormat is the form of log lines.
type LogFormat string

// The log formats.
const (
	LogJSON    LogFormat = "json"
	LogConsole LogFormat = "console"
)

// Role is what a host may be in its shard.
type Role string

// The roles.
const (
	RoleAuto    Role = "auto"    // takes part in the election; among hosts with RolePrimary it serves reads only
	RolePrimary Role = "primary" // takes part in the election; only such hosts are elected where there is one
	RoleReplica Role = "replica" // never elected
	RoleAny     Role = "any"     // the only host, served as it is; nobody asks whether it is a primary
)

// Target is the kind of server a client asks for; the words are those of libpq's target_session_attrs.
type Target string

// The targets.
const (
	TargetReadWrite     Target = "read-write"
	TargetStandby       Target = "standby"
	TargetPreferStandby Target = "prefer-standby"
	TargetAny           Target = "any"
)

// Fence says when a server connection must prove that its server takes writes before a client gets it for writing.
type Fence string

// The ways to fence.
const (
	FenceAuto   Fence = "auto"   // once per connection, and again while in doubt
	FenceAlways Fence = "always" // at every checkout
	FenceOff    Fence = "off"    // never
)

// FailoverPolicy says what happens to work for the primary while there is none.
type FailoverPolicy string

// The failover policies.
const (
	FailoverHold   FailoverPolicy = "hold"
	FailoverRefuse FailoverPolicy = "refuse"
)

// TwoWriters says what happens when two servers can be written to on one timeline.
type TwoWriters string

// The policies for two writers.
const (
	TwoWritersSitting TwoWriters = "sitting" // the one elected stays; with none elected nobody is
	TwoWritersRefuse  TwoWriters = "refuse"  // nobody is elected
)

// Balance says how reads are spread over the standbys.
type Balance string

// The balances.
const (
	BalanceLeastWaiting Balance = "least_waiting"
	BalanceRoundRobin   Balance = "round_robin"
	BalanceRandom       Balance = "random"
)

// choice is a type whose values are a closed set of words.
type choice interface{ words() []string }

func (PoolMode) words() []string       { return []string{"session", "transaction", "statement"} }
func (AuthType) words() []string       { return []string{"trust", "password", "md5", "scram-sha-256"} }
func (EventLoopKind) words() []string  { return []string{"epoll", "portable"} }
func (SigtermAction) words() []string  { return []string{"drain", "wait_for_clients"} }
func (LogLevel) words() []string       { return []string{"debug", "info", "warn", "error"} }
func (LogFormat) words() []string      { return []string{"json", "console"} }
func (Role) words() []string           { return []string{"auto", "primary", "replica", "any"} }
func (Target) words() []string         { return []string{"read-write", "standby", "prefer-standby", "any"} }
func (Fence) words() []string          { return []string{"auto", "always", "off"} }
func (FailoverPolicy) words() []string { return []string{"hold", "refuse"} }
func (TwoWriters) words() []string     { return []string{"sitting", "refuse"} }
func (Balance) words() []string        { return []string{"least_waiting", "round_robin", "random"} }

// Optional is a value that may be absent, where the zero value is a value of its own.
type Optional[T comparable] struct {
	Value T
	Set   bool
}

// Some returns an Optional that is set to v.
func Some[T comparable](v T) Optional[T] { return Optional[T]{Value: v, Set: true} }

// Or returns the value, or fallback when it is not set.
func (o Optional[T]) Or(fallback T) T {
	if o.Set {
		return o.Value
	}
	return fallback
}
