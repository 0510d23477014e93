#!/usr/bin/env bash
# PAIR=en-de|en-fr prepare.sh: WMT 2014 (5.1) → Moses tokens → joint BPE → fairseq's data-bin. Stop and
# repeat it at any time: files are written as NAME.part, then renamed. MIRROR: another server. Needs GNU tools.
set -euo pipefail && export LC_ALL=C.UTF-8 && pair=${PAIR:-en-de} && src=${pair%-*} tgt=${pair#*-} data=data/wmt14_${pair/-/_}
other=${tgt/#en/$src} # the archives call both directions de-en, fr-en, cs-en
p=training-parallel europarl=wmt13/$p-europarl-v7.tgz:europarl-v7.$other-en # ARCHIVE:MEMBER, without language
crawl=wmt13/$p-commoncrawl.tgz:commoncrawl.$other-en news=wmt14/$p-nc-v9.tgz:news-commentary-v9.$other-en
un=wmt13/$p-un.tgz:undoc.2000.$other-en giga=wmt10/training-giga-fren.tar:giga-fren.release2.fixed
case $pair in # another pair of WMT14: add texts, BPE size (--total-symbols: with characters), limits of clean
    en-de) texts=("$europarl" "$crawl" "$news") bpe=(37000 --total-symbols) words=250 ratio=9 ;;
    en-fr) texts=("$europarl" "$crawl" "$un" "$news" "$giga") bpe=(32000) words=175 ratio=1.5 ;;
    *) echo "prepare.sh: there is no pair $pair; choose en-de or en-fr" >&2 && exit 1 ;;
esac
[ ! -e "$data/data-bin" ] || { echo "prepare.sh: skipped, $data/data-bin exists; remove it to redo" >&2 && exit; }
mkdir -p "$data" && exec 9>"$data/.prepare.sh.lock"; flock -n 9 || { echo "prepare.sh: another one is running in $data" >&2; exit 1; }
once() { [ -e "$1" ] || { mkdir -p "${1%/*}" && "${@:2}" >"$1.part" && mv "$1.part" "$1"; }; }
extract() { # LANGUAGE ARCHIVE:MEMBER …; lines that are not UTF-8 become empty, odd spaces plain
    for part in "${@:2}"; do archive=data/archives/$(basename "${part%:*}")
        once "$archive" curl -fL "${MIRROR:-https://www.statmt.org}/${part%:*}" &&
            tar -xOf "$archive" --wildcards --no-anchored "${part#*:}.$1*" | gzip -cdf | sed -e '/^.*$/!z' \
            -e $'s/^\uFEFF*//; s/[[:space:]\\x00-\\x08\\x0e-\\x1f\\x7f\u0085\u00A0\u2007\u202F]/ /g' | awk 1 || return; done; }
newstest() { extract "$@" | sed -n '/<seg /{s/.*<seg[^>]*> *//; s/ *<\/seg>.*//; p}' | tr -s ' '; }
moses() { split -l 1000000 --filter="sacremoses -q -l $1 tokenize" "$2"; } # without -a, hyphens stay
clean() { paste "${@:2}" | grep -avP '^[\pC\pZ]*\t|\t[\pC\pZ]*$|\S{1001}' | awk -F'\t' -v w="$words" -v r="$ratio" \
    '{a = split($1, s, " "); b = split($2, t, " ")} a<=w && b<=w && a<=r*b && b<=r*a' | cut -f "$1"; }
for l in "$src" "$tgt"; do side=$([ "$l" = "$src" ] && echo src || echo ref)
    once "$data/text/all.$l" extract "$l" "${texts[@]}"
    once "$data/text/valid.$l" newstest "$l" "wmt14/dev.tgz:newstest2013-$side"
    once "$data/text/test.$l" newstest "$l" "wmt14/test-full.tgz:newstest2014-${other}en-$side"
    for set in all valid test; do once "$data/tok/$set.$l" moses "$l" "$data/text/$set.$l"; done
done
cmp <(wc -l <"$data/tok/all.$src") <(wc -l <"$data/tok/all.$tgt") # else the two texts do not match
for n in "1:$src" "2:$tgt"; do once "$data/tok/train.${n#*:}" clean "${n%:*}" "$data/tok/all".{"$src","$tgt"}; done
once "$data/codes" subword-nmt learn-bpe --symbols "${bpe[@]}" --input <(cat "$data/tok/train".{"$src","$tgt"})
for text in {train,valid,test}.{"$src","$tgt"}; do
    once "$data/bpe/$text" subword-nmt apply-bpe --codes "$data/codes" --input "$data/tok/$text"; done
rm -rf "$data/data-bin.part" && fairseq-preprocess --source-lang "$src" --target-lang "$tgt" \
    --trainpref "$data/bpe/train" --validpref "$data/bpe/valid" --testpref "$data/bpe/test" \
    --joined-dictionary --workers "$(nproc)" --destdir "$data/data-bin.part"
mv "$data/data-bin.part" "$data/data-bin"
