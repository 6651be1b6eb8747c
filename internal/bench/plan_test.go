package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func env(kv ...string) func(string) string {
	return func(key string) string {
		for _, s := range kv {
			if v, ok := strings.CutPrefix(s, key+"="); ok {
				return v
			}
		}
		return ""
	}
}

// Over as many rounds as there are arms, twice, each arm has each place, and each other arm before it.
func TestOrderIsFair(t *testing.T) {
	arms := []string{"a", "b", "c", "d"}
	places, before := map[string]map[int]bool{}, map[string]map[string]bool{}
	for _, a := range arms {
		places[a], before[a] = map[int]bool{}, map[string]bool{}
	}
	for round := range 2 * len(arms) {
		for ci := range 3 {
			o := order(arms, round, ci)
			if got := slices.Sorted(slices.Values(o)); !slices.Equal(got, arms) {
				t.Fatalf("round %d: %v", round, o)
			}
			for i, a := range o {
				places[a][i] = true
				if i > 0 {
					before[a][o[i-1]] = true
				}
			}
		}
	}
	for _, a := range arms {
		if len(places[a]) != len(arms) || len(before[a]) < 2 {
			t.Errorf("%s had the places %v and the predecessors %v", a, places[a], before[a])
		}
	}
}

func TestQuickRunFitsIntoFiveMinutes(t *testing.T) {
	for _, o := range [][]string{nil, {"-quick"}} {
		quick, err := parseOptions(o, env("QUICK="+map[bool]string{true: "1"}[o == nil]))
		if err != nil {
			t.Fatal(err)
		}
		if d := quick.estimate(); d > 285*time.Second || quick.rounds < 3 {
			t.Errorf("%v: %d rounds in %s", o, quick.rounds, d)
		}
		if quick.budget > 5*time.Minute {
			t.Errorf("%v: bounded by %s", o, quick.budget)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-clients", "2,4", "-rounds", "9"}, env("FENCEPOST=/x/fencepost", "QUICK=1"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.clients, []int{2, 4}) || o.rounds != 9 || o.seconds != 1 || !slices.Contains(o.arms, armOther) || o.other != "/x/fencepost" {
		t.Errorf("%+v", o)
	}
	if cells := o.cells(); len(cells) != 5 || !cells[4].Churn {
		t.Errorf("cells %v, want two modes with two counts and -C", cells)
	}
	_, err = parseOptions([]string{"-arms", "nonsense,direct,direct,other", "-seconds", "0", "-modes", "wild"}, env())
	for _, want := range []string{"nonsense", "twice", "-fencepost", "-seconds", "wild"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
