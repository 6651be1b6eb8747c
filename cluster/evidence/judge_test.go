package evidence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func boot(s string) (b Boot) { copy(b[:], s); return b }

func hostOf(s string) role.Host {
	if len(s) == 1 {
		return role.Host(fmt.Sprintf("10.0.0.%d:5432", s[0]-'a'+1))
	}
	return role.Host(s)
}

func spell(s string) string {
	for c := byte('a'); c <= 'f'; c++ {
		s = strings.ReplaceAll(s, string(hostOf(string(c))), string(c))
	}
	return s
}

func number(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// parse reads an event: "hosts a b [but c]", "decided a|nobody SYSTEM/GENERATION/TIMELINE", "look a VERDICT TIMELINE [id=N] [asked=-1s] [dialled=-1s]",
// "told M a VERDICT TIMELINE [...] [seat=N]", "claim M a SYSTEM/GENERATION/TIMELINE [AGO]", "kept" like that, "generation N", "order N AGO".
func parseEvent(t *testing.T, now time.Time, line string, seq uint64, repeated *FloorClaim) Event {
	f := strings.Fields(line)
	floor := func(s string) role.Floor {
		p := strings.Split(s, "/")
		return role.Floor{SystemID: number(t, p[0]), Generation: number(t, p[1]), Timeline: uint32(number(t, p[2]))}
	}
	observation := func(f []string) role.Observation {
		o := role.Observation{Host: hostOf(f[0]), SystemID: 7, Timeline: uint32(number(t, f[2])), Asked: now, Dialled: now}
		o.Verdict = map[string]role.Verdict{"unknown": 0, "writable": 1, "read-only": 2, "standby": 3}[f[1]]
		for _, opt := range f[3:] {
			k, v, _ := strings.Cut(opt, "=")
			switch k {
			case "id":
				o.SystemID = number(t, v)
			case "asked":
				d, _ := time.ParseDuration(v)
				o.Asked = now.Add(d)
			case "dialled":
				d, _ := time.ParseDuration(v)
				o.Dialled = now.Add(d)
			case "aurora":
				o.NoTimelines, o.SystemID = true, 0
			}
		}
		return o
	}
	switch f[0] {
	case "hosts":
		var list []role.Host
		for _, h := range f[1:] {
			list = append(list, hostOf(h))
		}
		if i := slices.Index(list, hostOf("but")); i >= 0 {
			return Hosts{List: list[:i], Voteless: list[i+1:]}
		}
		return Hosts{List: list}
	case "decided":
		e := Decided{Floor: floor(f[2])}
		if f[1] != "nobody" {
			e.Elected = hostOf(f[1])
		}
		return e
	case "look":
		return OwnObserved{observation(f[1:])}
	case "told":
		seat := uint64(0)
		if last, ok := strings.CutPrefix(f[len(f)-1], "seat="); ok {
			seat = number(t, last)
		}
		r, ok := NewObserved(ShardOf("main"), boot(f[1]), seq, observation(f[2:]), seat)
		if !ok {
			t.Fatalf("%s: cannot be told", line)
		}
		return PeerObserved{r, f[1]}
	case "claim", "kept":
		at := now
		if len(f) > 4 {
			ago, _ := time.ParseDuration(f[4])
			at = now.Add(-ago)
		}
		r, ok := NewClaimed(ShardOf("main"), boot(f[1]), seq, hostOf(f[2]), floor(f[3]), at)
		if !ok {
			t.Fatalf("%s: cannot be claimed", line)
		}
		*repeated = FloorClaim{Record: r, Member: f[1], Kept: f[0] == "kept"}
		return *repeated
	case "repeat": // the last claim, by whoever has accepted it
		return *repeated
	case "generation":
		return GenerationKnown{number(t, f[1])}
	case "order": // given at another member, so long ago
		ago, err := time.ParseDuration(f[2])
		if err != nil {
			t.Fatal(err)
		}
		return ForgetOrdered{number(t, f[1]), Order(boot(f[1])), now.Add(-ago)}
	}
	t.Fatalf("unknown event %q", line)
	return nil
}

// TestJudge runs the scripts that specify what gossip may do.
func TestJudge(t *testing.T) {
	datadriven.Walk(t, "testdata/judge", func(t *testing.T, path string) {
		j, now, seq, claim := &Judge{}, epoch, uint64(0), FloorClaim{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			if d.Cmd == "new" {
				j, now = &Judge{}, epoch
			}
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				if wait, ok := strings.CutPrefix(line, "wait "); ok {
					w, err := time.ParseDuration(wait)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(w)
					continue
				}
				seq++
				for _, e := range j.Step(now, parseEvent(t, now, line, seq, &claim)) {
					fmt.Fprintf(&out, "%s -> %s\n", line, spell(e.String()))
				}
			}
			if out.Len() == 0 {
				return "nothing\n"
			}
			return out.String()
		})
	})
}

// TestJudgeKeepsItsPace: whatever comes, doubts and probes of one host are a second apart, and the only floor there is was
// claimed for the shard's identifier and generation.
func TestJudgeKeepsItsPace(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		j, now := &Judge{}, epoch
		current := Decided{}
		doubts, probes := map[role.Host]time.Time{}, map[role.Host]time.Time{}
		for i := range 400 {
			now = now.Add(time.Duration(rnd.IntN(300)) * time.Millisecond)
			h := hostOf(string(rune('a' + rnd.IntN(4))))
			o := role.Observation{Host: h, Verdict: role.Verdict(rnd.IntN(4)), SystemID: uint64(rnd.IntN(3)), Timeline: uint32(rnd.IntN(4)),
				Asked: now.Add(-time.Duration(rnd.IntN(500)) * time.Millisecond)}
			b := boot(string(rune('p' + rnd.IntN(3))))
			var ev Event = OwnObserved{o}
			switch rnd.IntN(8) {
			case 0:
				list := []role.Host{hostOf("a"), hostOf(string(rune('a' + rnd.IntN(4))))}
				gone := func(h role.Host, _ time.Time) bool { return !slices.Contains(list, h) }
				maps.DeleteFunc(doubts, gone) // one that comes back is another one
				maps.DeleteFunc(probes, gone)
				ev = Hosts{List: list}
			case 1:
				current = Decided{h, role.Floor{SystemID: uint64(rnd.IntN(2)), Generation: current.Floor.Generation + uint64(rnd.IntN(2)), Timeline: 1}}
				ev = current
			case 2, 3:
				if r, ok := NewObserved(ShardOf("main"), b, uint64(i+1), o, 0); ok {
					ev = PeerObserved{r, "m"}
				}
			case 4, 5, 6:
				if r, ok := NewClaimed(ShardOf("main"), b, uint64(i+1), h, role.Floor{SystemID: uint64(rnd.IntN(3)), Generation: uint64(rnd.IntN(20)), Timeline: o.Timeline}, now); ok {
					ev = FloorClaim{Record: r, Member: "m"}
				}
			}
			for _, e := range j.Step(now, ev) {
				switch e := e.(type) {
				case Floor:
					if e.Floor.Timeline != 0 && (e.Floor.SystemID != current.Floor.SystemID || e.Floor.Generation != current.Floor.Generation) {
						t.Fatalf("seed %d: %s under %s", seed, e, current)
					}
				case Doubt:
					if last, ok := doubts[e.Host]; ok && now.Sub(last) < Pace {
						t.Fatalf("seed %d: two doubts within %s", seed, now.Sub(last))
					}
					doubts[e.Host] = now
				case Probe:
					if last, ok := probes[e.Host]; ok && now.Sub(last) < Pace {
						t.Fatalf("seed %d: two probes within %s", seed, now.Sub(last))
					}
					probes[e.Host] = now
				}
			}
		}
	}
}

// TestJudgeIsBounded: however many observers claim, and are contradicted, about however many hosts.
func TestJudgeIsBounded(t *testing.T) {
	j, now, seq := &Judge{}, epoch, uint64(0)
	j.Step(now, Hosts{List: []role.Host{hostOf("a")}})
	j.Step(now, Decided{hostOf("a"), role.Floor{SystemID: 7, Timeline: 1}})
	claims := func(observer int, h role.Host) {
		seq++
		r, _ := NewClaimed(ShardOf("main"), boot(fmt.Sprint("liar", observer)), seq, h, role.Floor{SystemID: 7, Timeline: 9}, now)
		j.Step(now, FloorClaim{Record: r, Member: "liar"})
	}
	for observer := range 3 * MaxClaims / MaxClaimsPerObserver {
		for i := range MaxClaimsPerObserver {
			claims(observer, role.Host(fmt.Sprintf("10.1.%d.%d:5432", i/250, i%250+1)))
		}
	}
	if len(j.claims) != MaxClaims {
		t.Errorf("%d claims are kept", len(j.claims))
	}
	for observer := range 2 * MaxClaims {
		claims(observer, hostOf("a"))
		now = now.Add(time.Millisecond)
		j.Step(now, OwnObserved{role.Observation{Host: hostOf("a"), Verdict: role.Writable, SystemID: 7, Timeline: 1, Asked: now, Dialled: now}})
	}
	if len(j.muted) != MaxClaims {
		t.Errorf("%d mutes are kept", len(j.muted))
	}
}

func TestJudgeForgetsTheFloodNotTheOthers(t *testing.T) {
	j := &Judge{}
	honest, _ := NewClaimed(ShardOf("main"), boot("honest"), 1, hostOf("b"), role.Floor{SystemID: 7, Timeline: 5}, epoch)
	j.Step(epoch, FloorClaim{Record: honest, Member: "honest"})
	for i := range 5000 {
		h := role.Host(fmt.Sprintf("10.1.%d.%d:5432", i/250, i%250+1))
		r, _ := NewClaimed(ShardOf("main"), boot("liar"), uint64(i+1), h, role.Floor{SystemID: 7, Timeline: 9}, epoch)
		j.Step(epoch, FloorClaim{Record: r, Member: "liar"})
	}
	j.Step(epoch, Hosts{List: []role.Host{hostOf("a"), hostOf("b")}})
	effects := j.Step(epoch, Decided{hostOf("a"), role.Floor{SystemID: 7, Timeline: 1}})
	if len(j.claims) > MaxClaimsPerObserver+1 {
		t.Errorf("%d claims kept", len(j.claims))
	}
	for _, e := range effects {
		if f, ok := e.(Floor); ok && f.Host == hostOf("b") && f.Floor.Timeline == 5 {
			return
		}
	}
	t.Errorf("the honest claim is gone: %v", effects)
}
