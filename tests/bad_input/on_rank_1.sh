#!/usr/bin/env bash
# Gives rank 1 alone a setting, and runs the rest of its arguments. Usage: on_rank_1.sh NAME=value program [argument...]
set -euo pipefail
rank="${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?no rank in the environment}}"
if [ "$rank" = 1 ]; then export "${1?}"; fi
shift
exec "$@"
