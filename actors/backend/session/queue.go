package session

// queue is a first-in first-out queue of message types. Up to len(small) of them need no memory besides the tracker's
// own; a deeper pipeline borrows a slice, given back when the queue runs empty.
type queue struct {
	small [16]byte
	big   []byte
	head  int32
	n     int32
}

func (q *queue) len() int { return int(q.n) }

func (q *queue) push(m byte) {
	if q.big == nil {
		if int(q.n) < len(q.small) {
			q.small[(q.head+q.n)&15] = m
			q.n++
			return
		}
		q.big = make([]byte, 0, 256)
		for i := int32(0); i < q.n; i++ {
			q.big = append(q.big, q.small[(q.head+i)&15])
		}
		q.head = 0
	}
	if int(q.head) > len(q.big)/2 && len(q.big) == cap(q.big) {
		k := copy(q.big, q.big[q.head:])
		q.big, q.head = q.big[:k], 0
	}
	q.big = append(q.big, m)
	q.n++
}

func (q *queue) first() byte {
	if q.big != nil {
		return q.big[q.head]
	}
	return q.small[q.head]
}

func (q *queue) at(i int32) byte {
	if q.big != nil {
		return q.big[q.head+i]
	}
	return q.small[(q.head+i)&15]
}

func (q *queue) last() byte {
	if q.big != nil {
		return q.big[len(q.big)-1]
	}
	return q.small[(q.head+q.n-1)&15]
}

func (q *queue) pop() {
	q.n--
	if q.big != nil {
		q.head++
		if q.n == 0 {
			q.big, q.head = nil, 0
		}
		return
	}
	q.head = (q.head + 1) & 15
}

// drain empties the queue and returns what was in it. Rare path: allocates.
func (q *queue) drain() []byte {
	out := make([]byte, 0, q.n)
	for q.n > 0 {
		out = append(out, q.first())
		q.pop()
	}
	return out
}
