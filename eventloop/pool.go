package eventloop

// bufferPool keeps buffers of three sizes for bytes that outlive their turn. It belongs to one loop.
type bufferPool struct {
	free [len(poolSizes)][][]byte
}

var (
	poolSizes = [...]int{512, 4 << 10, bufferSize}
	poolKeeps = [...]int{1024, 256, 32} // buffers kept of each size: at most 3.5 MiB
)

// get returns an empty slice with room for n bytes.
func (p *bufferPool) get(n int) []byte {
	for i, size := range poolSizes {
		if n > size {
			continue
		}
		if k := len(p.free[i]); k > 0 {
			b := p.free[i][k-1]
			p.free[i] = p.free[i][:k-1]
			return b
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n)
}

// put gives back a buffer of get or append, whole and from its start; its bytes are gone from now on. A nil b is fine.
func (p *bufferPool) put(b []byte) {
	for i, size := range poolSizes {
		if cap(b) == size && len(p.free[i]) < poolKeeps[i] {
			p.free[i] = append(p.free[i], b[:0])
			return
		}
	}
}

// append is the builtin for buffers of the pool.
func (p *bufferPool) append(b, more []byte) []byte {
	if n := len(b) + len(more); n > cap(b) {
		if n > bufferSize { // grow as append does, not byte by byte
			n = max(n, 2*cap(b))
		}
		grown := append(p.get(n), b...)
		p.put(b)
		b = grown
	}
	return append(b, more...)
}
