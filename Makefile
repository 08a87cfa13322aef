# The targets that people use. Each installs what it needs by itself and is safe to repeat.
#
#   make demo    see real threads herded on a real multi-node kernel (the lab)
#   make test    everything that CI checks
#   make fuzz    feeds every reader until each has had 10^8 inputs; can be stopped at any time, and goes on later
#   make storm   herds killed and ended for hours (STORM_TIME=8h), and every thread looked at; writes docs/storm.md
#   make bench   speed and memory, as ratios against a named alternative in the same run
#   make lint    format, lints, licences and sources of dependencies
#   make package Debian packages: numaherd (program, service, manual pages, completions) and numaherd-lab
#   make setup   only install what the others need
#
# NUMAHERD_LAB_DIR (default .lab) holds the guest's kernel and modules; removing it is safe.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
STORM_TIME ?= 8h

.DELETE_ON_ERROR:
.PHONY: demo test storm fuzz bench lint package setup build guest clean

setup:
	@scripts/setup.sh

# Both programs, the workloads and the plugin, as `demo` and `bench` use them.
build: setup
	@scripts/build.sh

# What the lab's guest needs besides the programs: the workloads and the plugin.
guest: setup
	@scripts/build.sh guest

demo: build
	@target/release/numaherd lab compare scenarios/demo.toml --ledgers target/demo

# Lints and the guest's programs are built beside each other, into folders of their own.
test: setup
	$(MAKE) --jobs=2 --assume-old=setup guest lint
	$(CARGO) test --workspace --locked

fuzz:
	@scripts/fuzz.sh --all

# Goes on where one of the same commit was stopped.
storm: setup
	mkdir -p target/storm
	$(CARGO) build --release --locked -p numaherd
	$(MAKE) --assume-old=setup guest
	STORM_NUMAHERD=$(CURDIR)/target/release/numaherd $(CARGO) test --workspace --test storm --locked -- long --for $(STORM_TIME) \
		--state $(CURDIR)/target/storm/$$(git describe --always --dirty '--exclude=*').json --page $(CURDIR)/docs/storm.md

bench: build
	@scripts/bench.sh

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@scripts/deny.sh

package: setup
	@scripts/package.sh

clean:
	$(CARGO) clean
	rm -rf "$${NUMAHERD_LAB_DIR:-.lab}"
