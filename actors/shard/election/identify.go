package election

// identify learns the shard's system identifier if it is not known: from a host seen writable, of several the one whose
// identifier most hosts share, else the first seen; or, if none is, from the agreement of all that answered, at least two
// unless the shard has one host.
func (m *Machine) identify() {
	if m.floor.SystemID != 0 || m.waiting() {
		return
	}
	var best *host
	for _, h := range m.hosts {
		if id := h.rec.Evidence().SystemID; id == 0 || !m.votes(h) || !h.rec.Electable(m.now, m.cfg.TTL) {
			continue
		}
		if best == nil || m.better(h, best) {
			best = h
		}
	}
	if best != nil {
		m.floor.SystemID = best.rec.Evidence().SystemID
		m.reason("system identifier %d learnt from %s, which is writable", m.floor.SystemID, best.Host)
	} else if m.floor.SystemID = m.agreed(); m.floor.SystemID != 0 {
		m.reason("system identifier %d learnt from the agreement of the hosts", m.floor.SystemID)
	}
	if m.floor.SystemID != 0 {
		m.dissent()
	}
}

func (m *Machine) better(h, than *host) bool {
	a, b := m.supporters(h.rec.Evidence().SystemID), m.supporters(than.rec.Evidence().SystemID)
	return a > b || a == b && h.writable.Before(than.writable)
}

func (m *Machine) supporters(id uint64) (n int) {
	for _, h := range m.hosts {
		if h.Role != Any && h.rec.Last().SystemID == id {
			n++
		}
	}
	return n
}

// agreed is the identifier that all hosts which told one have in common; 0 if there is none.
func (m *Machine) agreed() (id uint64) {
	told, all := 0, 0
	for _, h := range m.hosts {
		if h.Role == Any {
			continue
		}
		all++
		switch last := h.rec.Last().SystemID; {
		case last == 0:
			continue
		case id != 0 && id != last:
			return 0
		default:
			id = last
			told++
		}
	}
	if told < min(2, all) {
		return 0
	}
	return id
}

// dissent refuses hosts whose last answer was another cluster's, once the shard's is known.
func (m *Machine) dissent() {
	for _, h := range m.hosts {
		if id := h.rec.Last().SystemID; h.Role != Any && id != 0 && id != m.floor.SystemID {
			m.on(h.Host, "", func(h *host) { m.refuseForeign(h, h.rec.Last()) })
		}
	}
}
