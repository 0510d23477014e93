#!/usr/bin/env bash
# Averages the checkpoints of a trained run, translates with the search of the run's own
# 'generation:' section (in the WMT experiments, the paper's) and scores. This script only calls the
# stages; further arguments are options of 'vaswani generate' (--subset valid, --beam 4 …).
#
#   scripts/evaluate.sh RUN [options of vaswani generate]
#   LAST=N               how many checkpoints to average; by default as in the paper: 20 if the run
#                        keeps that many (keep_interval_updates; big), otherwise 5
#   AVERAGE=no           use the last checkpoint alone, as the paper did for Table 3's development
#                        set: AVERAGE=no scripts/evaluate.sh RUN --subset valid
set -euo pipefail

run=${1:?usage: scripts/evaluate.sh RUN [--subset valid] [--beam 4 …]}
shift
command -v vaswani >/dev/null || {
    echo "evaluate.sh: the command 'vaswani' is not installed; run 'make setup' and activate its" \
        "environment (source .venv/bin/activate)" >&2
    exit 1
}
subset="test"
previous=
for argument in "$@"; do
    [[ $previous == --subset ]] && subset=$argument
    [[ $argument == --subset=* ]] && subset=${argument#--subset=}
    previous=$argument
done
# the run's folder, and how many checkpoints to average; vaswani itself refuses what is not a run
{ read -r folder && read -r last; } < <(python - "$run" <<'END'
import sys
from vaswani.experiment.checkpoints import number_to_average
from vaswani.common.errors import UserError
from vaswani.experiment.find import find_run

try:
    folder = find_run(sys.argv[1])
    print(folder, number_to_average(folder), sep="\n")
except UserError:
    print(sys.argv[1], 5, sep="\n")
END
)

model=$run
if [[ ${AVERAGE:-yes} == no ]]; then
    model=$folder/checkpoints/checkpoint_last.pt
else
    vaswani average "$run" --last "${LAST:-$last}"
    model=$folder/checkpoints/checkpoint_average_last${LAST:-$last}.pt
fi
vaswani generate "$model" "$@"
exec vaswani score "$run" --subset "$subset"
