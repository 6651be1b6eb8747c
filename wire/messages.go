package wire

// Types of the messages that only a frontend sends. The names are those of PostgreSQL's protocol.h (PqMsg_…) and of the
// manual's chapter "Message Formats"; a byte can have another name in the other direction.
const (
	MsgBind             byte = 'B' // extended protocol: a portal from a statement and its parameters
	MsgClose            byte = 'C' // extended protocol: a statement or portal goes; see ObjectStatement, ObjectPortal
	MsgDescribe         byte = 'D' // extended protocol: what a statement or portal looks like
	MsgExecute          byte = 'E' // extended protocol: a portal runs
	MsgFunctionCall     byte = 'F' // the old way to call a function by its OID
	MsgFlush            byte = 'H' // extended protocol: answers are sent now
	MsgParse            byte = 'P' // extended protocol: a statement from SQL text
	MsgQuery            byte = 'Q' // simple protocol: SQL text, any number of statements
	MsgSync             byte = 'S' // extended protocol: the end of a batch, answered by ReadyForQuery
	MsgTerminate        byte = 'X' // the client leaves
	MsgCopyFail         byte = 'f' // COPY FROM STDIN ends with an error
	MsgPasswordResponse byte = 'p' // PasswordMessage, SASLInitialResponse, SASLResponse, GSSResponse
)

// Types of the messages that both sides send.
const (
	MsgCopyDone byte = 'c' // the data of a COPY have ended
	MsgCopyData byte = 'd' // data of a COPY
)

// Types of the messages that only a backend sends.
const (
	MsgParseComplete            byte = '1' // answers Parse
	MsgBindComplete             byte = '2' // answers Bind
	MsgCloseComplete            byte = '3' // answers Close
	MsgNotificationResponse     byte = 'A' // NOTIFY; may come at any time
	MsgCommandComplete          byte = 'C' // a statement has ended; its tag
	MsgDataRow                  byte = 'D' // a row
	MsgErrorResponse            byte = 'E' // an error; in the extended protocol the server then skips to the Sync
	MsgCopyInResponse           byte = 'G' // the server waits for CopyData
	MsgCopyOutResponse          byte = 'H' // CopyData follow
	MsgEmptyQueryResponse       byte = 'I' // CommandComplete for SQL without a statement
	MsgBackendKeyData           byte = 'K' // login: the key that cancels
	MsgNoticeResponse           byte = 'N' // a notice or warning; may come at any time
	MsgAuthentication           byte = 'R' // login: AuthOk, or what is asked for
	MsgParameterStatus          byte = 'S' // a parameter's value; may come at any time
	MsgRowDescription           byte = 'T' // the columns of the rows; answers Describe, or begins a Query's rows
	MsgFunctionCallResponse     byte = 'V' // answers FunctionCall
	MsgCopyBothResponse         byte = 'W' // replication: CopyData in both directions
	MsgReadyForQuery            byte = 'Z' // answers Query, Sync and FunctionCall; a Tx status
	MsgNoData                   byte = 'n' // answers Describe: no rows
	MsgPortalSuspended          byte = 's' // Execute's row limit was reached
	MsgParameterDescription     byte = 't' // a statement's parameters, before what answers its Describe
	MsgNegotiateProtocolVersion byte = 'v' // login: not all that was asked for is spoken
)

// The transaction status in a ReadyForQuery.
const (
	TxIdle   byte = 'I' // not in a transaction block
	TxOpen   byte = 'T' // in a transaction block
	TxFailed byte = 'E' // in a transaction block that can only be rolled back
)

// What a Describe or Close names.
const (
	ObjectStatement byte = 'S'
	ObjectPortal    byte = 'P'
)

// Fields of an ErrorResponse or NoticeResponse (PostgreSQL manual, "Error and Notice Message Fields").
const (
	FieldLocalizedSeverity byte = 'S' // may be translated
	FieldSeverity          byte = 'V' // never translated; since PostgreSQL 9.6
	FieldCode              byte = 'C' // the SQLSTATE
	FieldMessage           byte = 'M'
	FieldDetail            byte = 'D'
	FieldHint              byte = 'H'
)

// EncryptionRefused is the single byte that answers an SSLRequest or GSSENCRequest: the connection goes on in clear text.
const EncryptionRefused byte = 'N'
