package supervisor

import (
	"io"
	"net"
	"time"

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
		if err := sendCancel(p.Addr, key, cfg.Fencepost.CancelAckTimeout); err != nil {
			s.log.Warn().Err(err).Int("peer_id", p.ID).Str("addr", p.Addr).Msg("cancel request could not be passed on")
		}
	}()
}

// sendCancel sends a CancelRequest and waits until the other side has closed: then it has been dealt with.
func sendCancel(addr string, key wire.CancelKey, limit time.Duration) error {
	end := time.Now().Add(limit)
	c, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if _, err := c.Write(wire.AppendCancelRequest(nil, key)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}
