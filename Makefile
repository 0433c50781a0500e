# The front door: `make demo` and `make check` on a bare Debian 12 with git, make and a compiler. Writes only to build/ and .venv/.
# What each step does is in tools/ and CMakePresets.json; this file only puts them in order.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
.PHONY: help setup build demo check test test-asan test-asan-mpi test-tsan test-python lint tidy format bench clean

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
check-parts: lint test test-asan test-tsan

test: build  ## Every test, release build, both MPIs
	@tools/run-tests build/release

# The folders whose tests are whole programs of ours; with MPI underneath the sanitizers also see the MPI's own mistakes.
asan_folders := base engine gpu kernel
test-asan: setup  ## The tests without an MPI underneath, under AddressSanitizer and UndefinedBehaviorSanitizer
	@[ -e build/asan/build.ninja ] || cmake --preset asan --log-level=WARNING
	@cmake --build build/asan -j $(JOBS) --target $(foreach folder,$(asan_folders),tests/$(folder)/all)
	@failed=0; for folder in $(asan_folders); do tools/run-tests build/asan/tests/$$folder || failed=1; done; exit $$failed

test-asan-mpi: setup  ## The same for every test that is not labelled slow, the MPI-level ones included
	$(call build_preset,asan)
	@tools/run-tests build/asan -LE slow

test-tsan: setup  ## The engine's tests under ThreadSanitizer
	@if [ -d tests/engine ]; then \
	  [ -e build/tsan/build.ninja ] || cmake --preset tsan --log-level=WARNING; \
	  cmake --build build/tsan -j $(JOBS) --target tests/engine/all && tools/run-tests build/tsan/tests/engine; \
	else echo "no tests/engine yet: nothing for ThreadSanitizer"; fi

lint: setup  ## The quick linters, as errors
	@tools/lint

tidy: setup build  ## clang-tidy over all sources, as errors (takes long)
	@tools/tidy build/release --all

format: setup  ## Rewrite the sources with clang-format and ruff
	@tools/lint --fix

bench: build  ## The benchmarks, on the GPUs of this machine or on emulated ones
	@tools/bench build/release

clean:  ## Remove the builds, but keep .venv and what was unpacked
	rm -rf build/release build/debug build/asan build/tsan
