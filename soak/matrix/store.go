package matrix

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fencepost/soak/matrix/picture"
	"fencepost/soak/matrix/verdict"
)

// Report is what is kept of a run.
type Report struct {
	Settings settings          `json:"settings"`
	Versions map[string]string `json:"versions"` // by arm
	Cells    []*Cell           `json:"cells"`
}

// Cell is one event with one arm.
type Cell struct {
	Arm     string    `json:"arm"`
	Event   string    `json:"event"`
	Repeat  int       `json:"repeat"` // from 1 on
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Rate is how often a second the observer polled each server, of the one that it polled least.
	Rate  float64        `json:"observer_polls_per_second"`
	Old   string         `json:"old"`
	New   string         `json:"new"`
	Steps []picture.Mark `json:"steps,omitempty"`
	// Elections is how often Fencepost chose another primary, or none.
	Elections int             `json:"elections"`
	Result    *verdict.Result `json:"result,omitempty"`
	// Error is why there is no result. Such a cell is played again.
	Error string `json:"error,omitempty"`
}

func (c *Cell) name() string { return fmt.Sprintf("%s-%s-%d", c.Arm, c.Event, c.Repeat) }

// store keeps a report in a folder, "" for nowhere.
type store struct{ dir string }

const reportFile = "matrix.json"

// errOtherSettings says that a folder's cells cannot be compared with those of this run.
var errOtherSettings = errors.New("what is there was made with other settings: choose another folder, or begin anew")

// load returns what an earlier run has left, or an empty report.
func (s store) load(set settings, fresh bool) (*Report, error) {
	r := &Report{Settings: set, Versions: map[string]string{}}
	if s.dir == "" || fresh {
		return r, nil
	}
	b, err := os.ReadFile(filepath.Join(s.dir, reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	old := &Report{Versions: map[string]string{}}
	if err := json.Unmarshal(b, old); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, reportFile), err)
	}
	if old.Settings != set {
		return nil, fmt.Errorf("%s: %w", s.dir, errOtherSettings)
	}
	return old, nil
}

// save writes the report so that there is always a whole one.
func (s store) save(r *Report) error {
	if s.dir == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return s.write(reportFile, append(b, '\n'))
}

func (s store) write(name string, b []byte) error {
	if s.dir == "" {
		return nil
	}
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// put adds a cell, in the place of the same one if there is one.
func (r *Report) put(c *Cell) {
	for i, old := range r.Cells {
		if old.name() == c.name() {
			r.Cells[i] = c
			return
		}
	}
	r.Cells = append(r.Cells, c)
}

// has reports whether a cell has been played.
func (r *Report) has(arm, event string, repeat int) bool {
	for _, c := range r.Cells {
		if c.Arm == arm && c.Event == event && c.Repeat == repeat {
			return c.Result != nil
		}
	}
	return false
}

// Histories are kept apart, compressed: the pictures are made of them.

func (s store) historyFile(c *Cell) string { return filepath.Join("histories", c.name()+".json.gz") }

func (s store) saveHistory(c *Cell, h *picture.Row) error {
	if s.dir == "" {
		return nil
	}
	path := filepath.Join(s.dir, s.historyFile(c))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	return errors.Join(json.NewEncoder(z).Encode(h), z.Close())
}

// loadHistory returns nil if there is none.
func (s store) loadHistory(c *Cell) (*picture.Row, error) {
	f, err := os.Open(filepath.Join(s.dir, s.historyFile(c)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	h := new(picture.Row)
	return h, json.NewDecoder(z).Decode(h)
}
