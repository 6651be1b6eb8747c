// Package cluster has the actor of the fleet: the Fencepost processes that know what each other knows.
//
// memberlist says who is a member and carries packets and streams between them, encrypted. Over that go
//
//	evidence     packages evidence's records: at once and directly to every member, by gossip, and in every push/pull
//	cancels      to the member whose peer_id is in the key
//	operations   requests to every member with one answer each: PAUSE, RESUME, ..., SWITCHOVER
//
// The actor runs on the ordinary dispatcher. It owns nothing that others wait for: all that blocks (binding, DNS, joining,
// streams to other members, leaving) runs on goroutines that answer by message, and memberlist's callbacks copy and go.
//
//	starting --bound--> open --Close--> leaving --left, or leaveTimeout--> stopped
//	starting --address in use--> starting, again after a while
//
// Beside that it is ready or not: a shard grants no write before it got Ready, which comes once, after the first exchange
// with a member that is ready itself, after a round of attempts to join that reached somebody, or after JoinWait; at once
// if there is nobody to join.
//
// What is heard is kept in a table that memberlist's callbacks read too, under a mutex. A restarted actor joins anew under
// the same boot identifier and knows what it knew.
package cluster
