# Every target installs what it lacks where it can (scripts/install.sh) and says so where it cannot.
# Go is the only thing that must be there: scripts/go.sh finds one or says what to install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Looked for once, when a target first needs it.
GO = $(eval GO := $$(shell scripts/go.sh))$(if $(GO),$(GO),$(error no Go toolchain))
FUZZTIME ?= 10s
LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Not from the cache: some tests build the program and run it, which the cache does not see. make test has vetted before.
TESTFLAGS ?= -count=1 -timeout 8m -vet=off

# Packages whose tests bound how long a failover takes: nothing runs beside them. Of the others two run at a time.
ALONE := /internal/(e2e|demo)$$|/soak/matrix

# For make sim: how many histories, and the seed of the first.
HISTORIES ?= 10000
FIRST ?= 0

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Needs Go 1.26 or newer. 'make test', 'demo', 'bench' and 'soak' need PostgreSQL; 'make test' also npm (for other"
	@echo "  versions of PostgreSQL) and psycopg; race tests need gcc. As root on Debian they are installed when missing."

.PHONY: build
build: ## bin/fencepost
	$(GO) build -o bin/ ./cmd/...

# Systems and processors besides Linux on amd64 that the program is built for.
ELSEWHERE := linux/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64

.PHONY: build-elsewhere
build-elsewhere: ## that the program builds for Linux on arm64, macOS and FreeBSD
	@for to in $(ELSEWHERE); do \
		echo "== $$to"; \
		CGO_ENABLED=0 GOOS=$${to%/*} GOARCH=$${to#*/} $(GO) build -o /dev/null ./cmd/fencepost; \
	done

.PHONY: test
test: test-tools ## vet and all tests, with real PostgreSQL 12 to 18
	$(GO) vet ./...
	@failed=0; all=$$($(GO) list ./...); \
	$(GO) test $(TESTFLAGS) -p 2 $$(grep -vE '$(ALONE)' <<<"$$all") || failed=1; \
	$(GO) test $(TESTFLAGS) -p 1 $$(grep -E '$(ALONE)' <<<"$$all") || failed=1; \
	exit $$failed

.PHONY: test-tools
test-tools:
	@scripts/install.sh ca-certificates postgresql npm psycopg
	@[ "$$(id -u)" -ne 0 ] || scripts/install.sh iproute2 iptables || echo '== without them the tests of network namespaces are skipped'

.PHONY: test-drivers
test-drivers: test-tools ## every driver, JDBC and node-postgres too, against every version (needs Java, Maven, Node)
	FENCEPOST_E2E_FULL=1 $(GO) test -count=1 -timeout 20m -run 'Driver' ./internal/e2e

.PHONY: arch
arch: ## the rules a machine can check: imports, purity, package docs, SQLSTATEs
	$(GO) test -count=1 .

.PHONY: race
race: test-tools ## all tests under the race detector (cgo, so gcc)
	@scripts/install.sh gcc
	CGO_ENABLED=1 $(GO) test -race -timeout 20m -p 1 ./...

.PHONY: lint
lint: ## golangci-lint, with gofmt and vet (built from its module on first use: minutes)
	$(GO) run $(LINT) run ./...

.PHONY: check
check: arch lint race ## arch, lint, race

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@for pkg in $$($(GO) list ./...); do \
		list=$$($(GO) test -list '^Fuzz' $$pkg); \
		for f in $$(grep '^Fuzz' <<<"$$list" || true); do \
			echo "== $$pkg $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

.PHONY: bench
bench: ## pgbench through Fencepost and PgBouncer in one run (QUICK=1: under five minutes; PGBOUNCER=path)
	@scripts/install.sh ca-certificates postgresql
	$(GO) run ./internal/bench $(if $(QUICK),-quick) $(if $(PGBOUNCER),-pgbouncer $(PGBOUNCER)) $(BENCHFLAGS)

.PHONY: demo
demo: ## a primary, two standbys, three members, a live load, and a failover after 30 s; Ctrl-C ends and cleans up
	@scripts/install.sh ca-certificates postgresql
	$(GO) run ./cmd/fencepost demo

.PHONY: soak
soak: ## failovers of three kinds with Fencepost and with a control that has to fail: under five minutes
	@scripts/install.sh ca-certificates postgresql npm
	$(GO) run ./internal/soak matrix -short -fresh -out out/matrix-short -events switchover,crash,demote-in-place \
		-per-event 1 -arms fencepost,control -clients 20 $(SOAKFLAGS)

.PHONY: soak-long
soak-long: ## failovers of every kind with five arms, about an hour; goes on where it was interrupted
	@scripts/install.sh ca-certificates postgresql npm
	$(GO) run ./internal/soak matrix $(SOAKFLAGS)

.PHONY: soak-minute
soak-minute: test-tools ## one minute of mixed load with clients and backends killed at random
	$(GO) run ./internal/soak load -duration 1m -restart 20s $(SOAKFLAGS)

.PHONY: soak-load
soak-load: test-tools ## twenty minutes of the same
	$(GO) run ./internal/soak load -duration 20m $(SOAKFLAGS)

.PHONY: soak-cancel
soak-cancel: ## 45 minutes of cancels at random moments, and the control that has to be caught
	@scripts/install.sh ca-certificates postgresql npm
	$(GO) run ./internal/soak cancel $(SOAKFLAGS)
	$(GO) run ./internal/soak cancel -control -late=false -per-cell 1000 -total 0 -cell-limit 4m $(SOAKFLAGS)

.PHONY: soak-fleet
soak-fleet: ## a fleet of three: split brains, cancels, loss, one-way networks, a partition, switchovers, restarts; about 20 minutes
	@scripts/install.sh ca-certificates postgresql
	@[ "$$(id -u)" -ne 0 ] || scripts/install.sh iproute2 iptables || echo '== without them the network is one of ports'
	$(GO) run ./internal/soak fleet $(SOAKFLAGS)

.PHONY: sim
sim: ## 10000 simulated histories of a cluster (HISTORIES=n, FIRST=seed); a failure prints its seed
	$(GO) test -count=1 -timeout 6h -v ./internal/hasim -run TestHistories -histories $(HISTORIES) -first $(FIRST) -progress

.PHONY: clean
clean: ## what the targets above left in this folder
	rm -rf bin out
