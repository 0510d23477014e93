#!/usr/bin/env bash
# Everyday English to German: from Tatoeba's pairs to a packed model, runs/tatoeba_en_de/model. This
# script only calls the stages; each one continues, or is skipped if its result is there already.
# Training took 229 minutes of one thread of a Zen 3, beside other work, and reached 38.5 BLEU
# (docs/own-text.md).
#
# models/tatoeba_en_de, 42.2 BLEU, is a larger model, trained in two steps, on a GPU and on a CPU. The
# commands are in benchmarks/results/nvidia-h100_2026-11-27_tatoeba.md; after them and score_text below,
# `python scripts/shipped_model.py tatoeba_en_de` packed it.
#
#   scripts/tatoeba.sh FOLDER [NEWSTEST]
#
# FOLDER holds deu.txt (from deu-eng.zip of manythings.org/anki), or train.en and train.de, plain or
# .gz. NEWSTEST: also score newstest2013, NEWSTEST.en and NEWSTEST.de.
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
[[ $# -ge 1 && -d $1 ]] || {
    echo "usage: scripts/tatoeba.sh FOLDER [NEWSTEST]   (FOLDER has deu.txt of manythings.org/anki/deu-eng.zip)" >&2
    exit 2
}
name=tatoeba_en_de
text=data/tatoeba_text
run=runs/$name

# score_text SET PREFIX: beside the run's other scores, for the card
score_text() {
    vaswani translate $run/model "$2.en" --output "$run/eval/$1.hyp"
    vaswani score --hypotheses "$run/eval/$1.hyp" --references "$2.de" --pair en-de --json "$run/eval/$1.score.json"
}

[[ -e $text/train.en ]] || python "$here/tatoeba_split.py" "$1" $text
vaswani prepare --source-lang en --target-lang de --train $text/train --valid $text/valid \
    --test $text/test_clusters --bpe 4000 --out data/$name
vaswani train $name
vaswani average $name --last 5
vaswani generate $name
vaswani score $name
vaswani pack $name
score_text test_random $text/test_random
[[ $# -lt 2 ]] || score_text newstest2013 "$2"
