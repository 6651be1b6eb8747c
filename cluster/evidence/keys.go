package evidence

import (
	"maps"
	"slices"
)

// sortedKeys are the keys of a map in an order that does not depend on chance.
func sortedKeys[K comparable, V any](m map[K]V, compare func(K, K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
