package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
	"fencepost/internal/relay"
)

// Server is one of the cluster's servers, whatever its role.
type Server struct {
	Name       string // as cluster_name on the server
	RelayAddr  string // host:port that clients use, the same for the whole run
	DirectAddr string // host:port of the server itself

	node    *pgcluster.Node
	clients *relay.Relay // at RelayAddr
	peers   *relay.Relay // that the server's standbys use
	ports   []io.Closer
	cutOff  atomic.Bool
}

// front puts the relays before a server that is about to be started. It returns the address for the server's standbys.
func (w *World) front(n *pgcluster.Node) (string, error) {
	s := &Server{Name: n.Name, DirectAddr: n.Addr(), node: n}
	for _, r := range []**relay.Relay{&s.clients, &s.peers} {
		port, held, err := pgcluster.ReservePort()
		if err != nil {
			return "", errors.Join(err, s.close())
		}
		s.ports = append(s.ports, held)
		*r = relay.At(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), s.DirectAddr)
	}
	s.RelayAddr = s.clients.Addr()
	w.servers = append(w.servers, s)
	return s.peers.Addr(), nil
}

func (s *Server) relays() (all []*relay.Relay) {
	for _, r := range []*relay.Relay{s.clients, s.peers} {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}

func (s *Server) addrs() []string {
	all := []string{s.DirectAddr}
	for _, r := range s.relays() {
		all = append(all, r.Addr())
	}
	return all
}

func (s *Server) close() error {
	var err error
	for _, r := range s.relays() {
		r.Close()
	}
	for _, p := range s.ports {
		err = errors.Join(err, p.Close())
	}
	s.ports = nil
	return err
}

// stop stops the server in order and lets its relays refuse.
func (s *Server) stop(ctx context.Context) error {
	err := s.node.Stop(ctx, pgcluster.Fast)
	s.down()
	return err
}

// kill kills every process of the server.
func (s *Server) kill() error {
	err := s.node.Kill()
	s.down()
	return err
}

func (s *Server) down() {
	for _, r := range s.relays() {
		r.Down()
	}
}

// cut takes the network around the server down.
func (s *Server) cut() error {
	s.cutOff.Store(true)
	return errors.Join(s.clients.Cut(), s.peers.Cut())
}

// heal takes it up again.
func (s *Server) heal() {
	for _, r := range s.relays() {
		r.Heal()
	}
	s.cutOff.Store(false)
}

// received is how much of the WAL a standby has on disk, as a number that grows.
func (s *Server) received(ctx context.Context) (lsn int64, err error) {
	err = s.node.QueryRow(ctx, `SELECT (greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn)::bigint`, &lsn)
	return lsn, err
}

// readOnly sets the server's own default and waits until new transactions have it.
func (s *Server) readOnly(ctx context.Context, on bool) error {
	want := map[bool]string{true: "on", false: "off"}[on]
	if err := s.node.Configure(map[string]string{"default_transaction_read_only": want}); err != nil {
		return err
	}
	err := poll.Until(ctx, pollEvery, func() (bool, error) {
		var got string
		err := s.node.QueryRow(ctx, "SHOW default_transaction_read_only", &got)
		return got == want, err
	})
	if err != nil {
		return fmt.Errorf("%s: default_transaction_read_only = %s: %w", s.Name, want, err)
	}
	return nil
}
