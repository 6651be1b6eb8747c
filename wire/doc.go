// Package wire reads and writes PostgreSQL's frontend/backend protocol (PostgreSQL manual, chapter "Frontend/Backend
// Protocol") without keeping bytes: the startup packet, the boundaries of messages, the few bodies that a pooler must
// understand, and all messages it sends itself.
//
// Readers take slices that are valid for the call and say in their docs whether what they return points into them.
// Builders append to a slice and return it, as append does, and allocate nothing else. Lengths are judged before
// anything is allocated for them. Errors are *pgerr.Error.
package wire
