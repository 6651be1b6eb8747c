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

// The roles. This version serves RoleAny alone: the others need the election of a primary.
const (
	RoleAny     Role = "any"     // served as it is, nobody asks whether it is a primary
	RoleAuto    Role = "auto"    // takes part in the election
	RolePrimary Role = "primary" // the only one that may be elected
	RoleReplica Role = "replica" // never elected
)

// choice is a type whose values are a closed set of words.
type choice interface{ words() []string }

func (PoolMode) words() []string      { return []string{"session", "transaction", "statement"} }
func (AuthType) words() []string      { return []string{"trust", "password", "md5", "scram-sha-256"} }
func (EventLoopKind) words() []string { return []string{"epoll", "portable"} }
func (SigtermAction) words() []string { return []string{"drain", "wait_for_clients"} }
func (LogLevel) words() []string      { return []string{"debug", "info", "warn", "error"} }
func (LogFormat) words() []string     { return []string{"json", "console"} }
func (Role) words() []string          { return []string{"any", "auto", "primary", "replica"} }

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
