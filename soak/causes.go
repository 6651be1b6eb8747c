package soak

import (
	"strings"
	"sync/atomic"
	"time"

	"fencepost/soak/raw"
)

// causes is what the saboteur has done: an error is expected only after something that explains it.
type causes struct {
	terminated atomic.Int64 // backends
	kills      atomic.Int64 // clients, by the console
	restarts   atomic.Int64
	lastHarm   atomic.Int64 // unix nanoseconds of the last termination
	lastKill   atomic.Int64
	lastDown   atomic.Int64 // begin or end of the last restart
	lastPause  atomic.Int64
}

// aftermath is how long an act of sabotage may be felt.
const aftermath = 45 * time.Second

func mark(at *atomic.Int64) { at.Store(time.Now().UnixNano()) }

func recent(at *atomic.Int64) bool {
	t := at.Load()
	return t != 0 && time.Since(time.Unix(0, t)) < aftermath
}

// harmed reports whether server connections may have been lost recently.
func (c *causes) harmed() bool { return recent(&c.lastHarm) || recent(&c.lastDown) }

// mayEnd reports whether a FATAL error can be explained.
func (r *run) mayEnd(e *raw.Error) bool {
	switch e.Code {
	case "57P01":
		if e.Message == "admin forced disconnect" {
			return recent(&r.causes.lastKill)
		}
		return strings.HasPrefix(e.Message, "terminating connection") && r.causes.harmed()
	case "08006", "08007":
		return r.causes.harmed()
	case "57P02", "57P03":
		return recent(&r.causes.lastDown)
	}
	return false
}

// mayRefuseLogin reports whether a login may fail with e.
func (r *run) mayRefuseLogin(e *raw.Error) bool {
	switch e.Code {
	case "08P01":
		return e.Message == "client_login_timeout" && r.causes.down()
	case "53300", "57P01", "57014":
		return false
	}
	return false
}

// down reports whether PostgreSQL was restarted recently.
func (c *causes) down() bool { return recent(&c.lastDown) }

// refusal reports whether a request may be refused with e, so that nothing of it was done and the session goes on.
func (r *run) refusal(db *database, e *raw.Error) bool {
	switch {
	case e.Severity != "ERROR":
		return false
	case e.Code == "53300" && strings.HasPrefix(e.Message, "query_wait_timeout"):
		return db.scarce || r.causes.down()
	case e.Code == "57P03" && strings.HasPrefix(e.Message, "query_wait_timeout: database"):
		return db.scarce && recent(&r.causes.lastPause)
	case e.Code == "57P03": // in the small pool a login that was terminated may have been all there was to wait for
		return r.causes.down() || db.scarce && r.causes.harmed()
	}
	return false
}
