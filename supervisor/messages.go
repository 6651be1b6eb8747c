package supervisor

import "fencepost/actors/shard"

// Messages to the root of the tree, from a reload; nothing answers.
type (
	// spawnShard asks for an actor of a shard that is new in the settings.
	spawnShard struct{ shard *shard.Shard }
	// endShard asks for the end of one that is not in the settings any more.
	endShard struct{ name string }
)

// stopListening asks the listener to close its sockets. Nothing answers.
type stopListening struct{}
