#!/usr/bin/env bash
# Multi30k English-German: our tiny preset beside fairseq's own transformer at the same sizes.
# Stages only; each one continues or skips where its result is there already. On 2 CPU cores about an
# hour and a half for ours and five hours for fairseq's; minutes on a GPU.
#
#   scripts/multi30k.sh FOLDER     FOLDER holds {train,val,test_2016_flickr}.lc.norm.tok.{en,de},
#                                  plain or .gz
#   scripts/multi30k.sh            downloads those files (.gz) from the corpus's repository
#   URL=…                          where to download from; that repository's data/task1/tok
#   SYSTEMS="multi30k_en_de …"     which experiments (both)
set -euo pipefail

folder=${1:-}
url=${URL:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/tok}
read -r -a systems <<<"${SYSTEMS:-multi30k_en_de multi30k_en_de_fairseq}"

command -v vaswani >/dev/null || {
    echo "multi30k.sh: the command 'vaswani' is not installed; run 'make setup'" >&2
    exit 1
}
if [[ -z $folder ]]; then
    folder=data/multi30k_text
    mkdir -p "$folder"
    for part in train val test_2016_flickr; do
        for lang in en de; do
            file=$part.lc.norm.tok.$lang
            [[ -f $folder/$file || -f $folder/$file.gz ]] && continue
            # some of the corpus's files are packed and some are not
            curl -fsSL -o "$folder/.part" "$url/$file.gz" && mv "$folder/.part" "$folder/$file.gz" ||
                { curl -fsSL -o "$folder/.part" "$url/$file" && mv "$folder/.part" "$folder/$file"; } ||
                {
                    echo "multi30k.sh: $file could not be downloaded from $url; fetch the" \
                        "corpus by hand and name its folder: scripts/multi30k.sh FOLDER" >&2
                    exit 1
                }
        done
    done
fi

vaswani prepare multi30k_en_de --text "$folder"
for system in "${systems[@]}"; do
    vaswani train "$system"
    vaswani average "$system" --last 10
    vaswani generate "$system" --beam 5
    vaswani score "$system" >/dev/null
done
printf '\n%-26s %s\n' system 'BLEU (tokenised, lower-cased, test_2016_flickr; average of 10, beam 5)'
for system in "${systems[@]}"; do
    printf '%-26s ' "$system"
    vaswani score "$system" 2>/dev/null | sed -n 1p
done
