#!/usr/bin/env bash
# Averages, translates and scores a trained run: with the search of the run's own 'generation:'
# section, which in the WMT experiments is the paper's. Stages only; further arguments are options
# of 'vaswani generate' (--subset valid, --beam 4 …).
#
#   scripts/evaluate.sh RUN [options of vaswani generate]
#   LAST=20              how many checkpoints are averaged; else as many as the run keeps
#                        (keep_interval_updates: 5 of base, 20 of big), else 5
#   AVERAGE=no           the last checkpoint alone, as the development set of Table 3 was scored:
#                        AVERAGE=no scripts/evaluate.sh RUN --subset valid
set -euo pipefail

run=${1:?usage: scripts/evaluate.sh RUN [--subset valid] [--beam 4 …]}
shift
subset="test"
previous=
for argument in "$@"; do
    [[ $previous == --subset ]] && subset=$argument
    [[ $argument == --subset=* ]] && subset=${argument#--subset=}
    previous=$argument
done
folder=$run # what is no run is left to vaswani to refuse
for found in "$run" "runs/$run" "runs/${run//-/_}"; do
    [[ -f $found/config.yaml ]] && folder=$found && break
done

model=$run
if [[ ${AVERAGE:-yes} == no ]]; then
    model=$folder/checkpoints/checkpoint_last.pt
else
    kept=
    if [[ -f $folder/config.yaml ]]; then
        kept=$(sed -n 's/^ *keep_interval_updates: *\([1-9][0-9]*\) *$/\1/p' "$folder/config.yaml")
    fi
    vaswani average "$run" --last "${LAST:-${kept:-5}}"
fi
vaswani generate "$model" "$@"
exec vaswani score "$run" --subset "$subset"
