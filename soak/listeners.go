package soak

import "sync"

// listeners are the channels on which sessions listen now, by database.
type listeners struct {
	mu       sync.Mutex // guards channels
	channels map[int][]string
}

func (l *listeners) add(place int, channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.channels == nil {
		l.channels = map[int][]string{}
	}
	l.channels[place] = append(l.channels[place], channel)
}

func (l *listeners) remove(place int, channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.channels[place]
	for i, c := range all {
		if c == channel {
			all[i] = all[len(all)-1]
			l.channels[place] = all[:len(all)-1]
			return
		}
	}
}

// any returns one of the channels, "" if nobody listens.
func (l *listeners) any(place int, choose func(int) int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.channels[place]; len(all) > 0 {
		return all[choose(len(all))]
	}
	return ""
}
