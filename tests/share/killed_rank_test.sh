#!/usr/bin/env bash
# Runs killed_rank_test through run_mpi.sh (the arguments) and looks for what the killed ranks left behind.
set -euo pipefail

before="$(df --output=used /dev/shm | tail -1)"
status=0
output="$("$@" 2>&1)" || status=$?
[ "$status" -ne 77 ] || exit 77
line="$(grep -o 'segment [a-z_]* *[^ ]*' <<<"$output" | head -1)" || {
  printf 'no world was formed:\n%s\n' "$output" >&2
  exit 1
}
if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
  printf 'the launch should have failed at once, but ended with %s:\n%s\n' "$status" "$output" >&2
  exit 1
fi
read -r _ method name <<<"$line"
echo "the launch ended with $status; its segment was $method ${name:-without a name}"
for path in "/dev/shm$name" "$name"; do
  if [ -n "$name" ] && [ -e "$path" ]; then
    echo "left behind: $path" >&2
    exit 1
  fi
done
if [ "$method" = memfd ] && [ -n "${name:-}" ]; then
  echo "a memfd has no name" >&2
  exit 1
fi
echo "in /dev/shm: $before KiB before, $(df --output=used /dev/shm | tail -1) KiB after"
