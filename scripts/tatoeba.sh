#!/usr/bin/env bash
# Everyday English to German: from Tatoeba's pairs to the packed model (examples/tatoeba_en_de). This
# script only calls the stages; each one continues, or is skipped if its result is there already.
# Training takes about three hours on one core of a Zen 3.
#
#   scripts/tatoeba.sh FOLDER    FOLDER holds deu.txt (from deu-eng.zip of manythings.org/anki), or
#                                train.en and train.de, plain or .gz
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
[[ $# == 1 && -d $1 ]] || {
    echo "usage: scripts/tatoeba.sh FOLDER   (with deu.txt of https://www.manythings.org/anki/deu-eng.zip)" >&2
    exit 2
}
text=data/tatoeba_text
[[ -e $text/train.en ]] || python "$here/tatoeba_split.py" "$1" "$text"
name=tatoeba_en_de
vaswani prepare --source-lang en --target-lang de --train $text/train --valid $text/valid \
    --test $text/test_clusters --bpe 4000 --out data/$name
vaswani train $name
vaswani average $name --last 5
vaswani generate $name
vaswani score $name
vaswani pack $name
