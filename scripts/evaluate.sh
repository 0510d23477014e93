#!/usr/bin/env bash
# Averages, translates and scores a trained run. Stages only; further arguments are options of the
# search (--beam 4 --lenpen 0.6 …).
#
#   scripts/evaluate.sh RUN [options of vaswani generate]
#   LAST=5               how many checkpoints are averaged
set -euo pipefail

run=${1:?usage: scripts/evaluate.sh RUN [--beam 4 …]}
shift
vaswani average "$run" --last "${LAST:-5}"
vaswani generate "$run" "$@"
exec vaswani score "$run"
