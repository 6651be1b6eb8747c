// Package cancelrace tries to make a cancel hit the wrong client's statement.
//
// Sixty clients share a small pool in transaction mode, over a link to the server that can be made long (package relay).
// Forty of them, the victims, loop short statements that nobody ever cancels: whatever 57014 one of them gets was meant
// for somebody else. Twenty, the cancellers, run statements of their own and cancel them at random moments, once or up to
// three times at once, wait for the cancel connection's end or do not, and sometimes leave in the middle. A statement
// that reported its start and had 200 ms left when its cancel was sent must have been cancelled.
//
// What counts is cancels that reached the server; the relay counts them. Against a pooler without cancel leases (the
// control) the same clients see foreign hits by the hundred; if they did not, their silence would prove nothing.
package cancelrace
