package supervisor

import "fencepost/actors/shard"

// Messages to the root of the tree, from a reload; nothing answers.
type (
	// spawnShard asks for an actor of a shard that is new in the settings.
	spawnShard struct{ shard *shard.Shard }
	// endShard asks for the end of one that is not in the settings any more.
	endShard struct{ name string }
)

// yield tells the listener that no client is taken any more: it leaves a shared port to a successor. Nothing answers.
type yield struct{}
