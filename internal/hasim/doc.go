// Package hasim simulates the automatic primary: the real actors of a shard, its monitors, its lanes, their backends and
// the sessions in front of them, against scripted servers whose true state an oracle knows.
//
//	clients -- memconn --> Sessions, Lanes, backends -- network --> fakepg.Server, one per server of the cluster
//	                       Shard's actor, monitors ------^
//
// A history is played inside a testing/synctest bubble on seeded loops (eventloop.Options.Seed), one step at a time: what
// happens follows from its seed. The shard's actor and the monitors live on a loop of their own there, so that they take
// turns with the lanes message by message. First things go wrong (scenarios), then the cluster is made whole, and service
// has to come back by itself, or, where the floor stands in the way, after the FORGET that the errors ask for.
//
// What must hold at every step is in oracle_test.go, what must hold in the end in live_test.go. The package holds nothing
// but tests.
package hasim
