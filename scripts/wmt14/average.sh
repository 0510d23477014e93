#!/usr/bin/env bash
# Averages the last checkpoints, ten minutes apart: 5 of base, 20 of big (6.1).
#   PAIR=en-de|en-fr SIZE=base|big scripts/wmt14/average.sh
# Without this project: scripts/average_checkpoints.py of fairseq's repository, with
# --num-update-checkpoints, which does not count checkpoint_last.pt (update 100,000 of base).
set -euo pipefail
pair=${PAIR:-en-de} size=${SIZE:-base}
run=runs/wmt14_${pair/-/_}_$size
case $size in
    base) averaged=5 ;; # updates 94,500, 96,000, 97,500, 99,000 and the last, 100,000
    big) averaged=20 ;; # updates 288,600 to 300,000
    *) echo "average.sh: there is no size $size; choose base or big" >&2 && exit 1 ;;
esac
average=$run/checkpoints/checkpoint_average_last$averaged.pt
[ ! -e "$average" ] || { echo "average.sh: skipped, $average exists; remove it to redo" >&2 && exit; }
vaswani average "$run" --last "$averaged" --output "$average"
