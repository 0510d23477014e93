#!/usr/bin/env bash
# The demo: text → training → averaging → translation → scores → report → a packed model. This script
# only calls the stages; each one continues, or is skipped if its result is there already.
#
#   scripts/demo.sh [en-de|en-fr]        makes data/ and runs/ in the current folder
set -euo pipefail

pair=${1:-en-de}
name=demo_${pair//-/_}

seconds=()
stage() {
    local start=$SECONDS
    printf '\n== %s\n' "$*" >&2
    "$@"
    seconds+=("$2=$((SECONDS - start))")
}

case $pair in
    en-de | en-fr) ;;
    *) echo "demo.sh: there is no pair '$pair'; choose en-de or en-fr" >&2; exit 1 ;;
esac
command -v vaswani >/dev/null || {
    echo "demo.sh: the command 'vaswani' is not installed; run 'make demo', which sets it up" >&2
    exit 1
}
SECONDS=0
stage vaswani prepare "$name"
stage vaswani train "$name"
stage vaswani average "$name" --last 5
stage vaswani generate "$name"
stage vaswani score "$name"
stage vaswani pack "$name"
root=$(cd "$(dirname "$0")/.." && pwd)
stage env PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" \
    python -m scripts.demo_report "$name" "${seconds[@]}"
sentence='The meeting is on the 3rd of March 1987.'
printf '\n== echo "%s" | vaswani translate runs/%s/model\n' "$sentence" "$name" >&2
vaswani translate "runs/$name/model" <<<"$sentence"
printf '\nThe whole demo took %d min %02d s.\n' $((SECONDS / 60)) $((SECONDS % 60)) >&2
