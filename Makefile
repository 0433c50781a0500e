# The front door: `make demo` and `make check` on a bare Debian 12 with git, make and a compiler. Writes only to build/ and .venv/.
# What each step does is in tools/ and CMakePresets.json; this file only puts them in order.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
.PHONY: help setup build demo check test test-asan test-asan-mpi test-tsan lint tidy tidy-recent format bench clean

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## Install what is missing: Debian packages, .venv, peer MPIs, CUDA headers (nothing missing: 0.2 s)
	@tools/setup

# build/<preset>: configures once, then builds. CMake reconfigures itself when its files change.
define build_preset
	@[ -e build/$(1)/build.ninja ] || cmake --preset $(1) --log-level=WARNING
	@cmake --build build/$(1) -j $(JOBS) $(if $(2),--target $(2))
endef

build: setup  ## Release build, in build/release
	$(call build_preset,release)

demo: build  ## The main job: every MPI procedure on device buffers, under both MPIs, checked against host copies
	@tools/demo build/release

.NOTPARALLEL:
check: setup  ## Everything that CI holds: linters, tests, sanitizers (runs all, fails if anything failed)
	@$(MAKE) --keep-going check-parts
	@echo "check: all passed"

.PHONY: check-parts
check-parts: lint test tidy-recent test-asan test-tsan

test: build  ## Every test, release build, both MPIs
	@tools/run-tests build/release

# First the programs that are ours alone, where a leak is a leak; then programs over MPI, of which every kind of
# call is one, over one MPI: what is compiled for the other is the same text (make test-asan asan_families="openmpi mpich"). Leaks are
# not judged there: MPIs keep memory until the process ends, in allocations of ours too. Of programs that differ by the type of handles alone
# there is one; searches through millions of states are left to the release build.
asan_folders := base engine gpu kernel layout share
asan_alone := tests/base/all engine_test_openmpi tests/gpu/all tests/kernel/all layout_node_test share_test
asan_programs := demo point_to_point_special bad_input_errors local_test one_sided
asan_families := openmpi
empty :=
asan_targets := $(foreach family,$(asan_families),$(addsuffix _$(family),crosslane $(asan_programs)))
asan_mpi_tests := ^(demo|point_to_point_special|bad_input_errors|local_test|one_sided_(epochs_random|completion|dynamic_random|sharing))[.]($(subst $(empty) $(empty),|,$(asan_families)))$$
test-asan: setup  ## What is ours alone, and each kind of MPI call, under AddressSanitizer and UndefinedBehaviorSanitizer
	@[ -e build/asan/build.ninja ] || cmake --preset asan --log-level=WARNING
	@cmake --build build/asan -j $(JOBS) --target $(asan_alone) $(asan_targets)
	@failed=0; \
	for folder in $(asan_folders); do \
	  ASAN_OPTIONS=detect_leaks=1 tools/run-tests build/asan/tests/$$folder -LE mpi -E 'NOT_BUILT|MembersGoOneWay|^Protocol' || failed=1; done; \
	tools/run-tests build/asan -R '$(asan_mpi_tests)' || failed=1; exit $$failed

test-asan-mpi: setup  ## The same for every test that is not labelled slow (takes long)
	$(call build_preset,asan)
	@tools/run-tests build/asan -LE slow

test-tsan: setup  ## The tests of the engine and of flag protocols, the GPUs' and the board's, under ThreadSanitizer
	@[ -e build/tsan/build.ninja ] || cmake --preset tsan --log-level=WARNING
	@cmake --build build/tsan -j $(JOBS) --target engine_test_openmpi tests/kernel/all share_test
	@tools/run-tests build/tsan/tests/engine -E NOT_BUILT && tools/run-tests build/tsan/tests/kernel -R '^(Team|Flags)' -E EveryOperation && \
	  tools/run-tests build/tsan/tests/share -R '^(Board|Offers)'

lint: setup  ## The quick linters, as errors
	@tools/lint

tidy: setup build  ## clang-tidy over all sources, as errors (takes some ten minutes)
	@tools/tidy build/release --all

tidy-recent: build  ## clang-tidy, last changed sources first, for half a minute
	@tools/tidy build/release --seconds 30

format: setup  ## Rewrite the sources with clang-format and ruff
	@tools/lint --fix

bench: build  ## The benchmarks, on the GPUs of this machine or on emulated ones
	@tools/bench build/release

clean:  ## Remove the builds, but keep .venv and what was unpacked
	rm -rf build/release build/debug build/asan build/tsan
