#!/usr/bin/env bash
# Runs a program by the CUDA runtime: alone it must fail, as an MPI that knows no GPUs takes its memory for the host's, and with Crosslane it
# must pass. Usage: runtime_test.sh <run_mpi.sh> <its arguments>
set -euo pipefail
run=$1
shift
if "$run" --preload off "$@" >/dev/null 2>&1; then
  echo "runtime_test.sh: skipped, this MPI takes GPU memory by itself"
  exit 77
fi
"$run" "$@"
echo "runtime_test.sh: fails alone, passes with Crosslane"
