package supervisor

import (
	"fencepost/actors/backend"
	"fencepost/actors/frontend"
	"fencepost/wire"
)

// forwardCancel passes a cancel on to the process that issued its key: to a [peers] section's, as PgBouncer does, else over
// the fleet. A number nobody has is dropped without a word, as an unknown key is.
func (s *Fencepost) forwardCancel(peer uint16, key wire.CancelKey, done func()) {
	cfg := s.config.Load()
	p := cfg.Peers[int(peer)]
	if p == nil && s.inFleet(peer, frontend.KeyBytes(key), done) {
		return
	}
	if p == nil {
		s.log.Debug().Uint16("peer_id", peer).Msg("cancel request for an unknown peer")
		done()
		return
	}
	s.cancels.Add(1)
	go func() {
		defer s.cancels.Add(-1)
		defer done()
		if r := backend.SendCancel("tcp", p.Addr, key, cfg.Fencepost.CancelAckTimeout); r.Err != nil {
			s.log.Warn().Err(r.Err).Int("peer_id", p.ID).Str("addr", p.Addr).Msg("cancel request could not be passed on")
		}
	}()
}
