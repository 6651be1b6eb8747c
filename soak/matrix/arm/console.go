package arm

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"fencepost/internal/poll"
	"fencepost/internal/product"
)

// Said is what Fencepost's console said, each time it was something new.
type Said struct {
	At      time.Time // by when
	Floor   uint32    // the highest timeline that it has seen, 0 for none
	Elected string    // address of the primary, "" for none
}

// watcher asks Fencepost's console again and again, until close.
type watcher struct {
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex // guards said
	said []Said
}

// askEvery is how often the console is asked.
const askEvery = 50 * time.Millisecond

func watch(f *product.Fencepost) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{stop: stop, done: make(chan struct{})}
	go w.work(ctx, f.OpenConsole()) // ends by close
	return w
}

func (w *watcher) close() {
	w.stop()
	<-w.done
}

// work asks. Errors are the business of others: without an answer nothing was said.
func (w *watcher) work(ctx context.Context, c *product.Console) {
	defer close(w.done)
	defer c.Close()
	poll.Each(ctx, askEvery, func() {
		if s, err := shard(ctx, c); err == nil {
			w.note(s)
		}
	})
}

func (w *watcher) note(s Said) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.said); n == 0 || w.said[n-1].Floor != s.Floor || w.said[n-1].Elected != s.Elected {
		w.said = append(w.said, s)
	}
}

func (w *watcher) all() []Said {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

// shard reads about the one shard in SHOW SHARDS.
func shard(ctx context.Context, c *product.Console) (Said, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	row, err := c.Shard(ctx)
	if err != nil {
		return Said{}, err
	}
	floor, err := strconv.ParseUint(row["floor"], 10, 32)
	if row["elected"] == "NULL" {
		row["elected"] = ""
	}
	return Said{At: time.Now(), Floor: uint32(floor), Elected: row["elected"]}, err
}
