package prepared

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"fencepost/actors/backend/session"
	"fencepost/wire"
)

// server is a connection whose server knows statements by their names on it, and answers what is sent in order.
type server struct {
	cache   Cache
	tracker session.Tracker
	has     map[string]string // name: text
}

// take lets the server work off what is in out; with fail it fails at the first message and skips to a Sync.
func (s *server) take(t *testing.T, out []byte, fail bool) {
	t.Helper()
	var sc wire.Scanner
	for len(out) > 0 {
		m, n, err := sc.Next(out)
		if err != nil {
			t.Fatal(err)
		}
		out = out[n:]
		if fail {
			continue
		}
		answer := wire.MsgBindComplete
		switch m.Type {
		case wire.MsgFlush:
			continue
		case wire.MsgDescribe:
			answer = wire.MsgNoData
		case wire.MsgParse:
			p, ok := ReadParse(m.Body)
			if !ok {
				t.Fatalf("a malformed Parse: %q", m.Body)
			}
			if _, taken := s.has[string(p.Name)]; taken {
				t.Fatalf("%s is parsed again", p.Name)
			}
			s.has[string(p.Name)] = string(p.Text)
			answer = wire.MsgParseComplete
		case wire.MsgClose:
			delete(s.has, string(m.Body[1:len(m.Body)-1]))
			answer = wire.MsgCloseComplete
		}
		if !s.cache.Answered(answer) {
			t.Fatalf("%c is not understood", answer)
		}
	}
	if fail && !s.cache.Answered(wire.MsgErrorResponse) {
		t.Fatal("the error is not understood")
	}
	s.tracker.Sent(wire.MsgSync)
	if !s.tracker.Ready(wire.TxIdle) {
		t.Fatal("ReadyForQuery is not understood")
	}
}

// Whatever clients parse, close and bind on whatever connections, with batches that fail: a statement that is named to a
// server is there with the client's text, no connection has more than it may, and nothing is left when all are gone.
func TestStatementsAreTheClients(t *testing.T) {
	const limit = 4
	r := rand.New(rand.NewPCG(1, 2))
	var store Store
	servers := make([]*server, 3)
	for i := range servers {
		servers[i] = &server{has: map[string]string{}}
		servers[i].tracker.Reset()
		servers[i].cache.Tracker = &servers[i].tracker
	}
	clients, texts := make([]*Names, 5), make([]map[string]string, 5)
	for i := range clients {
		clients[i], texts[i] = NewNames(&store), map[string]string{}
	}
	for range 50_000 {
		i := r.IntN(len(clients))
		n, own, s := clients[i], texts[i], servers[r.IntN(len(servers))]
		name := fmt.Sprint("s", r.IntN(3))
		fail := r.IntN(5) == 0
		if fail { // an Execute that fails, and all behind it is skipped
			s.tracker.Sent(wire.MsgExecute)
		}
		var out []byte
		switch _, has := own[name]; {
		case r.IntN(3) == 0:
			out = n.Close(out, &s.cache, []byte(name))
			if !fail {
				delete(own, name)
			}
		case !has:
			text := fmt.Sprintf("SELECT %d\x00\x00\x00", r.IntN(12))
			out = n.Parse(out, &s.cache, Parsed{Name: []byte(name), Text: []byte(text)}, "", limit)
			if !fail {
				own[name] = text
			}
		}
		s.take(t, out, fail)
		for name, text := range own {
			out, known, v := n.Need(nil, &s.cache, []byte(name), limit)
			s.take(t, out, false)
			if v == Wait {
				_, known, v = n.Need(nil, &s.cache, []byte(name), limit)
			}
			if v != Ready {
				t.Fatalf("the client's %s cannot be used: %d", name, v)
			}
			if s.has[known] != text {
				t.Fatalf("%s is %q on the server, want %q", name, s.has[known], text)
			}
		}
		if n.Len() != len(own) {
			t.Fatalf("the client has %d statements, want %d", n.Len(), len(own))
		}
		if s.cache.Len() > limit || len(s.has) > limit+1 || s.cache.Len() > len(s.has) {
			t.Fatalf("%d statements in the cache, %d on the server", s.cache.Len(), len(s.has))
		}
	}
	for _, n := range clients {
		n.Drop()
	}
	for _, s := range servers {
		s.cache.Drop()
	}
	if len(store.byKey) > 0 || store.bytes != 0 {
		t.Errorf("%d statements of %d bytes are left", len(store.byKey), store.bytes)
	}
}
