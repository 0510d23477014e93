#!/usr/bin/env bash
# Makes the WMT14 data: download → verify → extract → normalise → clean → tokenise → learn BPE →
# apply → binarise. After a kill the same command continues; when all is done, it does nothing.
#
#   scripts/prepare_wmt14.sh en-de|en-fr [--recipe paper|t2t|fairseq] [--out DIR] [--archives DIR]
#                            [--workers N] [--limit PAIRS] [--from STAGE] [any option of
#                            'vaswani prepare']
#
#   --recipe    docs/wmt14-data.md compares the three (default: paper)
#   --out       where to put the result (default: data/wmt14_en_de, …)
#   --archives  where archives are looked for and downloaded to (default: data/archives)
#   --limit     a trial with this many training pairs
#   --from      redo this stage and those after it: download, extract, clean, tokenise, learn-bpe, …
set -euo pipefail

die() {
    echo "prepare_wmt14.sh: $*" >&2
    exit 1
}

case ${1:-} in
    en-de | en-fr) name=wmt14_${1//-/_} ;;
    -h | --help)
        sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) die "there is no pair '${1:-}'; choose en-de or en-fr (--help says more)" ;;
esac
shift
options=()
recipe=paper
while (($#)); do
    case $1 in
        --recipe)
            (($# > 1)) || die "--recipe needs a value: paper, t2t or fairseq"
            recipe=$2
            shift
            ;;
        --recipe=*) recipe=${1#*=} ;;
        *) options+=("$1") ;;
    esac
    shift
done
case $recipe in
    paper) ;;
    t2t | fairseq) name+=_$recipe ;;
    *) die "there is no recipe '$recipe'; choose paper, t2t or fairseq" ;;
esac
command -v vaswani >/dev/null ||
    die "the command 'vaswani' is not installed; run 'make setup' and activate its environment"
exec vaswani prepare "$name" ${options[@]+"${options[@]}"}
