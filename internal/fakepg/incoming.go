package fakepg

import (
	"io"

	"fencepost/wire"
)

// Incoming is what a client reads of a server, for tests that look where it ends: between messages, where the other side
// could have said why, or inside of one.
type Incoming struct {
	From    io.Reader
	scanner wire.Scanner
}

// Read implements io.Reader. Bytes that are no messages are an error.
func (in *Incoming) Read(p []byte) (int, error) {
	n, err := in.From.Read(p)
	var m wire.Fragment
	for rest := p[:n]; len(rest) > 0; {
		k, err := in.scanner.Scan(rest, &m)
		if err != nil {
			return n, err
		}
		rest = rest[k:]
	}
	return n, err
}

// AtBoundary reports whether what was read ends with the end of a message.
func (in *Incoming) AtBoundary() bool { return in.scanner.AtBoundary() }
