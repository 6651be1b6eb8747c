package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/supervisor"
)

func serve(path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	log, flush := newLogger(&cfg.Fencepost, os.Stderr)
	defer flush()
	if err := writePidfile(cfg.Fencepost.Pidfile); err != nil {
		return err
	}
	defer removePidfile(cfg.Fencepost.Pidfile)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	s, err := supervisor.Start(cfg, version, log)
	if err != nil {
		return err
	}
	go obey(s, signals)
	return s.Wait()
}

// obey carries out signals until the process ends.
func obey(s *supervisor.Fencepost, signals <-chan os.Signal) {
	ending := false
	for sig := range signals {
		switch {
		case sig == syscall.SIGHUP:
			if s.Reload() == nil {
				setLevel(s.Config().Fencepost.LogLevel)
			}
		case ending || sig == syscall.SIGQUIT:
			s.Shutdown(admin.Immediate)
		case sig == syscall.SIGTERM && s.Config().Fencepost.Sigterm == config.SigtermWaitForClients:
			ending = true
			s.Shutdown(admin.WaitForClients)
		default:
			ending = true
			s.Shutdown(admin.WaitForServers)
		}
	}
}

// newLogger writes to out: colours only to a terminal, durations with their unit.
func newLogger(f *config.Fencepost, out *os.File) (zerolog.Logger, func()) {
	queue := supervisor.NewLogQueue(out)
	var w io.Writer = queue
	if f.LogFormat == config.LogConsole {
		stat, err := out.Stat()
		terminal := err == nil && stat.Mode()&os.ModeCharDevice != 0
		w = zerolog.ConsoleWriter{Out: queue, TimeFormat: "15:04:05.000", NoColor: !terminal}
	}
	setLevel(f.LogLevel)
	zerolog.DurationFieldFormat = zerolog.DurationFormatString
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	return zerolog.New(w).With().Timestamp().Logger(), func() { queue.Close() }
}

func setLevel(l config.LogLevel) {
	if level, err := zerolog.ParseLevel(string(l)); err == nil {
		zerolog.SetGlobalLevel(level)
	}
}

func writePidfile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	return nil
}

// removePidfile leaves the file alone if a process that takes over has written its own id there.
func removePidfile(path string) {
	if path == "" {
		return
	}
	if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(os.Getpid()) {
		os.Remove(path)
	}
}
