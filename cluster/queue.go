package cluster

import (
	"container/list"

	"fencepost/cluster/evidence"
)

// retransmit is how often a record is told on, times the logarithm of the number of members.
const retransmit = 4

// queue has the registers to tell on: those told least often first, and each in its newest value, since they are encoded
// when they are sent. Every member tells on what was news to it, or gossip reaches nobody but the first few.
type queue struct {
	levels []*list.List // of evidence.Key, by how often it was told
	at     map[evidence.Key]*queued
}

type queued struct {
	level   int
	element *list.Element
}

func newQueue() queue { return queue{at: make(map[evidence.Key]*queued)} }

func (q *queue) len() int { return len(q.at) }

// add puts a register in, or back to the front.
func (q *queue) add(k evidence.Key) {
	if old, ok := q.at[k]; ok {
		q.levels[old.level].Remove(old.element)
	}
	q.put(k, 0)
}

func (q *queue) put(k evidence.Key, level int) {
	for len(q.levels) <= level {
		q.levels = append(q.levels, list.New())
	}
	q.at[k] = &queued{level, q.levels[level].PushBack(k)}
}

func (q *queue) remove(k evidence.Key) {
	if old, ok := q.at[k]; ok {
		q.levels[old.level].Remove(old.element)
		delete(q.at, k)
	}
}

// pop offers the registers one after the other until one does not fit. Each that does counts as told once more, and
// leaves the queue when it was told sends times or is gone.
func (q *queue) pop(sends int, offer func(evidence.Key) (fits, gone bool)) {
	var told []evidence.Key
	defer func() {
		for _, k := range told {
			level := q.at[k].level + 1
			q.remove(k)
			if level < sends {
				q.put(k, level)
			}
		}
	}()
	for _, level := range q.levels {
		for e := level.Front(); e != nil; {
			next, k := e.Next(), e.Value.(evidence.Key)
			switch fits, gone := offer(k); {
			case gone:
				q.remove(k)
			case !fits:
				return
			default:
				told = append(told, k)
			}
			e = next
		}
	}
}
