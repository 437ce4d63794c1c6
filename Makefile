# Two commands for newcomers: `make run` takes data, `make test` checks everything.
# Further automation is in `cargo xtask`; this file only finds the tools and calls it.

CARGO ?= cargo
PYTHON ?= python3
PROGRAM := target/release/livetime
CONFIG ?= examples/dimuon.toml

# A second build of an unchanged tree has nothing to say.
QUIET := $(if $(wildcard $(PROGRAM)),--quiet)

# Cargo would put the program elsewhere.
unexport CARGO_TARGET_DIR

.PHONY: help run test tidy shows tools

help:
	@echo 'make run    build, take data for 20 s with $(CONFIG), show a report'
	@echo 'make test   formatting, lints, documentation, tidy and every test'
	@echo 'make tidy   only the rules of the project that need no build'
	@echo 'make shows  the acceptance lines of first light, with figures (others: cargo xtask shows NAME)'
	@echo 'cargo xtask soak  lists the long forms of tests'

run: tools
	@$(CARGO) build --release $(QUIET) --package livetime
	@$(PROGRAM) run $(CONFIG)

test: TOOLS_FOR := test
test: tools
	@$(CARGO) xtask test

tidy: tools
	@$(CARGO) xtask tidy

shows: tools
	@$(CARGO) xtask shows first-light

tools:
	@CARGO='$(CARGO)' PYTHON='$(PYTHON)' xtask/tools.sh $(TOOLS_FOR)
