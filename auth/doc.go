// Package auth is the server side of a client's login: it asks the client for
// a proof and checks it against the user's secret from the settings.
//
// One [Exchange] is one login. It is a pure machine over message bodies: it
// reads no socket and knows no deadline. Its states:
//
//	created --Start--> waiting --Step--> succeeded | failed
//	                      |  ^
//	                      +--+  SASL: two or three steps
//
//	created   -> waiting    Start appended the first Authentication request.
//	created   -> succeeded  Start, method trust, the user is known.
//	created   -> failed     Start, method trust, the user is not known.
//	waiting   -> waiting    Step appended the next request; the answer is due.
//	waiting   -> succeeded  Step accepted the proof.
//	waiting   -> failed     Step refused the proof, or the message was malformed.
//
// A failed or succeeded Exchange stays what it is; any further Step is refused.
//
// # Which method meets which secret
//
// As in PgBouncer (doc/config.md, auth_type): password checks any secret; md5
// speaks SCRAM with a user whose secret is a SCRAM verifier; scram-sha-256
// takes a verifier or a plaintext secret and refuses an md5 one. Only
// SCRAM-SHA-256 without channel binding is offered.
//
// # Slow work
//
// Two things cost a PBKDF2 (milliseconds) and do not belong on an event loop:
//
//   - [Secret.Derive], once for each plaintext secret met by SCRAM. Ask
//     [Secret.Ready] before [NewExchange] and run Derive on a goroutine if it
//     says no. From then on SCRAM costs a few HMACs.
//   - Step of a cleartext password checked against a SCRAM verifier. Ask
//     [Exchange.Slow] before Step and run that Step on a goroutine if it says
//     yes; until it answers nobody else may touch the Exchange.
//
// # Who does not exist
//
// An unknown user, a user without a password and a user whose secret does not
// fit the method get a mock secret ([Mock], [Profile.Mock]): the same requests
// on the wire, the same work, the same salt each time they try, and the same
// error as a wrong password, [fencepost/pgerr.LoginFailed]. What stays visible:
// the salt of a mock secret lasts as long as the process, that of a verifier
// from the settings as long as the verifier; and where the settings mix kinds
// of secrets or iteration counts, unknown users look like the most common one.
package auth
