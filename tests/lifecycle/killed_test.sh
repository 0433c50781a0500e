#!/usr/bin/env bash
# Runs killed_test through run_mpi.sh (the arguments): the launch must fail by itself, soon, and leave no file, process or
# name of Crosslane's behind.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
export TMPDIR="$folder"
names() { find /dev/shm /tmp "$folder" -maxdepth 1 -name '*crosslane*' 2>/dev/null | sort; }
names >"$folder/before"

status=0
output="$("$@" 2>&1)" || status=$?
[ "$status" -ne 77 ] || exit 77
printf '%s\n' "$output"
if ! grep -q 'killing rank 1' <<<"$output" || grep -q 'FAILED' <<<"$output"; then
  echo "the ranks did not come so far" >&2
  exit 1
fi
if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
  echo "the launch should have failed by itself, but ended with $status" >&2
  exit 1
fi
left="$(comm -13 "$folder/before" <(names))"
if [ -n "$left" ]; then
  printf 'left behind:\n%s\n' "$left" >&2
  exit 1
fi
program="${*: -1}"
if pgrep -f "^$program" >/dev/null; then
  echo "ranks are still there:" >&2
  pgrep -af "^$program" >&2
  exit 1
fi
echo "the launch ended with $status and left nothing"
