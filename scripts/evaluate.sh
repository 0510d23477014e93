#!/usr/bin/env bash
# Averages, translates and scores a trained run: with the search of the run's own 'generation:'
# section, which in the WMT experiments is the paper's. Stages only; further arguments are options
# of 'vaswani generate' (--subset valid, --beam 4 …).
#
#   scripts/evaluate.sh RUN [options of vaswani generate]
#   LAST=N               how many checkpoints are averaged; else the paper's: 20 where the run keeps
#                        so many (keep_interval_updates; big), 5 otherwise
#   AVERAGE=no           the last checkpoint alone, as the development set of Table 3 was scored:
#                        AVERAGE=no scripts/evaluate.sh RUN --subset valid
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
# the run's folder, and how many checkpoints are averaged; what is no run, vaswani refuses
{ read -r folder && read -r last; } < <(python - "$run" <<'END'
import sys
from vaswani.checkpoints import last_of_the_paper
from vaswani.errors import UserError
from vaswani.experiment import find_run

try:
    folder = find_run(sys.argv[1])
    print(folder, last_of_the_paper(folder), sep="\n")
except UserError:
    print(sys.argv[1], 5, sep="\n")
END
)

model=$run
if [[ ${AVERAGE:-yes} == no ]]; then
    model=$folder/checkpoints/checkpoint_last.pt
else
    vaswani average "$run" --last "${LAST:-$last}"
fi
vaswani generate "$model" "$@"
exec vaswani score "$run" --subset "$subset"
