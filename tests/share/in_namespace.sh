#!/usr/bin/env bash
# Runs its arguments, on rank 1 in a PID namespace of its own, as in a container: /proc/<pid>/fd of others is not there.
# Status 77 where this system does not let us make one.
set -euo pipefail
unshare --pid --fork --mount-proc true 2>/dev/null || exit 77
rank="${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?no rank in the environment}}"
if [ "$rank" = 1 ]; then exec unshare --pid --fork --mount-proc --kill-child "$@"; fi
exec "$@"
