#!/usr/bin/env bash
# Multi30k English-German: our tiny preset beside fairseq's own transformer at the same sizes; or
# English-French, our preset alone. This script only calls the stages; each one continues, or is
# skipped if its result is there already. On 2 CPU cores ours takes 1.5 to 3 hours and fairseq's 4
# to 5, depending on the processor; on a GPU, minutes.
#
#   scripts/multi30k.sh FOLDER     FOLDER holds {train,val,test_2016_flickr}.lc.norm.tok.{en,de},
#                                  plain or .gz
#   scripts/multi30k.sh            downloads those files from the corpus's repository
#   PAIR=en-fr                     English-French
#   URL=…                          where to download from instead; the texts must be the same
#                                  (multi30k.sha256), plain or .gz
#   SYSTEMS="multi30k_en_de …"     which experiments to run (default: all of the pair's)
set -euo pipefail

folder=${1:-}
pair=${PAIR:-en-de}
sums=$(dirname "${BASH_SOURCE[0]}")/multi30k.sha256
# holds the texts that this project's records were made with; a later one changed train's English
commit=7bee46bc74186b4b6254603143610f730d40bf66
url=${URL:-https://raw.githubusercontent.com/multi30k/dataset/$commit/data/task1/tok}
case $pair in
    en-de) systems="multi30k_en_de multi30k_en_de_fairseq" ;;
    en-fr) systems="multi30k_en_fr" ;;
    *) echo "multi30k.sh: there is no pair '$pair'; choose en-de or en-fr" >&2; exit 1 ;;
esac
read -r -a systems <<<"${SYSTEMS:-$systems}"

command -v vaswani >/dev/null || {
    echo "multi30k.sh: the command 'vaswani' is not installed; run 'make setup'" >&2
    exit 1
}
is_the_text() { # FILE SHA256: whether the file, uncompressed, is the published text
    [[ $(gzip -cdf "$1" | sha256sum) == "$2  -" ]]
}
fail() {
    echo "multi30k.sh: $1" >&2
    exit 1
}
if [[ -z $folder ]]; then
    folder=data/multi30k_text
    part=$folder/.part.$$
    trap 'rm -f "$part" "$part.text"' EXIT
    mkdir -p "$folder"
    while read -r sum file; do
        [[ $pair == *"${file##*.}"* ]] || continue # not a language of the pair
        for there in "$folder/$file" "$folder/$file.gz"; do
            [[ -f $there ]] || continue
            is_the_text "$there" "$sum" && continue 2
            fail "$there is not the corpus's $file; move it away to download that, or name the folder to train on it all the same: scripts/multi30k.sh $folder"
        done
        curl -fsSL -o "$part" "$url/$file" || curl -fsSL -o "$part" "$url/$file.gz" ||
            fail "$file could not be downloaded from $url; fetch the corpus by hand and name its folder: scripts/multi30k.sh FOLDER"
        is_the_text "$part" "$sum" ||
            fail "what $url has as $file is not the corpus's text (its SHA-256 is not the one in $sums); nothing was kept. Give another URL, or fetch the corpus by hand and name its folder: scripts/multi30k.sh FOLDER"
        gzip -cdf "$part" >"$part.text"
        mv "$part.text" "$folder/$file"
    done <"$sums"
fi

vaswani prepare "multi30k_${pair/-/_}" --text "$folder"
for system in "${systems[@]}"; do
    vaswani train "$system"
    vaswani average "$system" --last 10
    vaswani generate "runs/$system/checkpoints/checkpoint_average_last10.pt" --beam 5
    vaswani score "$system" >/dev/null
done
printf '\n%-26s %s\n' system 'BLEU (tokenised, lower-cased, test_2016_flickr; average of 10, beam 5)'
for system in "${systems[@]}"; do
    printf '%-26s ' "$system"
    vaswani score "$system" 2>/dev/null | sed -n 1p
done
