// Package prepared makes prepared statements belong to their client although server connections are shared: which names a
// client has (Names), which statements a server connection has (Cache), and the texts both refer to (Store). It is pure.
//
// A named statement is known to servers by a name of ours that stands for its text, its parameter types and the settings
// its analysis depends on, and for nothing else as long as the process lives: whatever goes wrong with the accounting, a
// server that runs a statement under such a name runs the right one. Only the unnamed statement has no name of its own; a
// Bind of it passes only behind a Parse of the same client on the same server connection.
//
// Changes count from the moment they are sent, since a client may use a statement before the answer to its Parse. Each is
// an op, in the order sent:
//
//	sent      -> answered: it has happened
//	sent      -> failed, or skipped by the server up to the Sync: it is undone
//
// A message whose meaning depends on an unanswered op of an earlier batch (before a Sync) waits for the answer: the op may
// have been skipped although the message will not be. Decision record 0010.
package prepared
