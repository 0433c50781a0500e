#!/usr/bin/env bash
# Runs one test program under an MPI launcher with Crosslane and, without real GPUs, the emulated driver preloaded into
# the ranks (never into the launcher). The same registered tests run on real GPUs with CROSSLANE_TEST_GPU=real; those that
# set the emulated driver's faults are skipped there.
# With --prints its output must match that extended regular expression.
# Exit status: the program's; 77 if this machine cannot run it; 124 if it was ended after --timeout seconds.
set -euo pipefail

usage() {
  cat >&2 <<'TEXT'
usage: run_mpi.sh --family openmpi|mpich --build <folder> [--mpiexec <launcher>] [--ranks <n>] [--gpus <k>]
                  [--preload on|off|<library>] [--heap host|managed] [--naps on|off] [--timeout <seconds>] [--prints <expression>] [--sanitize <list>] [--env <NAME=value>]... -- program [argument...]
environment: CROSSLANE_TEST_GPU=real   use the machine's driver instead of the emulated one
             CROSSLANE_TEST_GPU=one    as on a machine with one GPU, emulated; one_in_turns: the same without MPS
             CROSSLANE_SANITIZE=<list> as --sanitize
TEXT
  exit 2
}

family='' build='' mpiexec='' ranks=1 gpus=0 preload=on heap=host naps=on seconds=120 prints='' sanitize="${CROSSLANE_SANITIZE:-}"
extra=()
while [ $# -gt 0 ]; do
  case "$1" in
    --family) family="$2" ;;
    --build) build="$2" ;;
    --mpiexec) mpiexec="$2" ;;
    --ranks) ranks="$2" ;;
    --gpus) gpus="$2" ;;
    --preload) preload="$2" ;;
    --heap) heap="$2" ;;
    --naps) naps="$2" ;;
    --timeout) seconds="$2" ;;
    --sanitize) sanitize="$2" ;;
    --prints) prints="$2" ;;
    --env) extra+=("$2") ;;
    --) shift; break ;;
    *) usage ;;
  esac
  shift 2
done
if [ $# -eq 0 ] || [ -z "$family" ] || [ -z "$build" ]; then usage; fi
if [ -z "$mpiexec" ]; then
  mpiexec="$(command -v "mpiexec.$family" || command -v mpiexec)" || { echo "run_mpi.sh: no launcher of $family" >&2; exit 77; }
fi

# What the ranks load first, and what they are told.
libraries=()
environment=()
case ",$sanitize," in
  *,address,*)
    libraries+=("$(realpath "$("${CXX:-g++}" -print-file-name=libasan.so)")")
    environment+=("ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}")
    ;;
  *,thread,*)
    libraries+=("$(realpath "$("${CXX:-g++}" -print-file-name=libtsan.so)")")
    environment+=("TSAN_OPTIONS=ignore_noninstrumented_modules=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}")
    ;;
esac
machine="${CROSSLANE_TEST_GPU:-emulated}"
if [ "$machine" != emulated ]; then
  # What the emulated driver is told about itself means nothing to a machine's own. Whether there is MPS tests ask the driver.
  kept=()
  for entry in "${extra[@]}"; do
    case "$entry" in
      CROSSLANE_EMULATED_MPS=*) ;;
      CROSSLANE_EMULATED_*)
        echo "run_mpi.sh: skipped, a real driver knows no ${entry%%=*}"
        exit 77
        ;;
      *) kept+=("$entry") ;;
    esac
  done
  extra=("${kept[@]}")
fi
if [ "$machine" = real ]; then
  present="$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)"
  # Ranks share what there is: a test that cannot do with fewer GPUs says so itself.
  if [ "$gpus" -gt 0 ] && [ "$present" -eq 0 ]; then
    echo "run_mpi.sh: skipped, this machine has no GPU"
    exit 77
  fi
elif [ "$gpus" -gt 0 ]; then
  case "$machine" in
    emulated) ;;
    one) gpus=1 ;;
    one_in_turns)
      gpus=1
      environment+=("CROSSLANE_EMULATED_MPS=0")
      ;;
    *) usage ;;
  esac
  libraries+=("$build/lib/emulated/libcuda.so.1")
  environment+=("CROSSLANE_GPU=emulated:$gpus")
else
  environment+=("CROSSLANE_GPU=none")
fi
case "$preload" in
  on) libraries+=("$build/lib/libcrosslane_$family.so") ;;
  off) ;;
  *) libraries+=("$preload") ;;
esac
# See tests/applications/managed_heap.cpp.
case "$heap" in
  host) ;;
  managed) libraries+=("$build/lib/libcrosslane_test_heap.so") ;;
  *) usage ;;
esac
# See tests/support/polling/yield.cpp.
yield="$build/lib/libcrosslane_test_yield.so"
if [ "$naps" = on ] && [ "$ranks" -ge "$(nproc)" ] && [ -e "$yield" ]; then libraries+=("$yield"); fi
for library in "${libraries[@]}"; do
  # ld.so only warns about a preload that is missing: the test would then pass or fail for the wrong reason.
  [ -e "$library" ] || { echo "run_mpi.sh: $library is not built" >&2; exit 2; }
done
if [ ${#libraries[@]} -gt 0 ]; then
  environment+=("LD_PRELOAD=$(IFS=:; echo "${libraries[*]}")${LD_PRELOAD:+:$LD_PRELOAD}")
fi
# Settings reject CROSSLANE_* names that they do not know; these two speak to this script alone.
unset CROSSLANE_TEST_GPU CROSSLANE_SANITIZE

launch=("$mpiexec")
case "$family" in
  openmpi)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Open MPI 4 wants a remote shell even where it starts nothing elsewhere.
    if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
      export OMPI_MCA_plm_rsh_agent="${OMPI_MCA_plm_rsh_agent-}"
    fi
    launch+=(--oversubscribe --bind-to none)
    ;;
  mpich) ;;
  *) usage ;;
esac
launch+=(-n "$ranks")
# env on the rank's side serves both launchers, sets nothing in the launcher, and lets --env override what stands above.
launch+=(env "${environment[@]}" "${extra[@]}" "$@")

status=0
run() { timeout --signal=TERM --kill-after=10 "$seconds" "${launch[@]}" </dev/null; }
if [ -z "$prints" ]; then
  run || status=$?
else
  output="$(mktemp)"
  trap 'rm -f "$output"' EXIT
  run 2>&1 | tee "$output" || status=$?
  if [ "$status" -eq 0 ] && ! grep -Eq -- "$prints" "$output"; then
    echo "run_mpi.sh: it has not printed '$prints'" >&2
    status=1
  fi
fi
[ "$status" -ne 124 ] || echo "run_mpi.sh: ended after $seconds seconds" >&2
exit "$status"
