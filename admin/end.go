package admin

import (
	"context"
	"strings"

	"fencepost/pgerr"
)

// drain is DRAIN: the end of this process as SIGTERM's drain, without a wait for it. There is none of the whole fleet:
// nobody would be left to serve.
func drain(x *execution, s statement) error {
	switch args := s.args(); {
	case len(args) == 1 && args[0].is("fleet"):
		return pgerr.ConsoleError("DRAIN applies to one member at a time").WithHint("DRAIN one member, replace it, and go on with the next.")
	case len(args) > 0:
		return pgerr.ConsoleSyntax(s.text)
	}
	x.ops.Shutdown(WaitForServers)
	return x.done("DRAIN")
}

func shutdown(x *execution, s statement) error {
	arg, err := s.argument()
	if err != nil {
		return err
	}
	switch strings.ToUpper(arg) {
	case "":
		x.ops.Shutdown(Immediate)
		// No answer before the end, as in PgBouncer: whoever waits for one waits until the process is gone.
		<-x.ctx.Done()
		return context.Cause(x.ctx)
	case "WAIT_FOR_SERVERS":
		x.ops.Shutdown(WaitForServers)
	case "WAIT_FOR_CLIENTS":
		x.ops.Shutdown(WaitForClients)
	default:
		return pgerr.ConsoleSyntax(s.text)
	}
	return x.done("SHUTDOWN")
}
