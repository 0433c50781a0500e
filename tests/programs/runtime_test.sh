#!/usr/bin/env bash
# Runs a program by the CUDA runtime, which takes nothing but a machine's own driver: alone it must fail, as an MPI that knows no GPUs
# takes its memory for the host's, and with Crosslane it must pass. Usage: runtime_test.sh <run_mpi.sh> <its arguments>
set -euo pipefail
if [ "${CROSSLANE_TEST_GPU:-emulated}" != real ]; then
  echo "runtime_test.sh: skipped, the CUDA runtime needs a machine's own GPU"
  exit 77
fi
run=$1
shift
if "$run" --preload off "$@" >/dev/null 2>&1; then
  echo "runtime_test.sh: skipped, this MPI takes GPU memory by itself"
  exit 77
fi
"$run" "$@"
echo "runtime_test.sh: fails alone, passes with Crosslane"
