package pgerr

// SQLSTATEs that Fencepost sends or looks for in a server's errors, under PostgreSQL's condition names
// (PostgreSQL manual, appendix A).
const (
	SuccessfulCompletion       = "00000"
	ConnectionFailure          = "08006" // the server is gone; nothing is in doubt
	TransactionOutcomeUnknown  = "08007" // transaction_resolution_unknown: a request was sent and not answered
	ProtocolViolated           = "08P01"
	FeatureUnsupported         = "0A000"
	InvalidParameterValue      = "22023"
	ReadOnlyTransaction        = "25006"
	InvalidStatementName       = "26000" // invalid_sql_statement_name
	IdleInTransactionTimeout   = "25P03"
	TransactionTimeout         = "25P04"
	InvalidAuthorization       = "28000"
	InvalidPassword            = "28P01"
	InvalidCatalogName         = "3D000"
	InsufficientPrivilege      = "42501"
	SyntaxError                = "42601"
	DuplicatePreparedStatement = "42P05"
	TooManyConnections         = "53300"
	ProgramLimitExceeded       = "54000"
	ObjectNotInPrerequisite    = "55000" // object_not_in_prerequisite_state
	QueryCanceled              = "57014"
	AdminShutdown              = "57P01"
	CrashShutdown              = "57P02"
	CannotConnectNow           = "57P03"
	IdleSessionTimeout         = "57P05"
	SystemError                = "58000"
	ConfigFileError            = "F0000"
	InternalError              = "XX000"
)
