#!/usr/bin/env bash
# Translates newstest2014 with the average, by the paper's beam search (6.1), on one GPU or the CPU:
#   PAIR=en-de|en-fr SIZE=base|big scripts/wmt14/generate.sh [flags of fairseq-generate …]
set -euo pipefail
pair=${PAIR:-en-de} size=${SIZE:-base} && src=${pair%-*} tgt=${pair#*-}
data=data/wmt14_${pair/-/_} run=runs/wmt14_${pair/-/_}_$size
averaged=$([ "$size" = big ] && echo 20 || echo 5)
average=$run/checkpoints/checkpoint_average_last$averaged.pt out=$run/eval/test
[ ! -e "$out.hyp" ] || { echo "generate.sh: skipped, $out.hyp exists; remove it to redo" >&2 && exit; }
[ -e "$average" ] || { echo "generate.sh: no $average; run average.sh" >&2 && exit 1; }
flags=(
    --user-dir "$(vaswani plugin-dir)" --task vaswani_translation --source-lang "$src" --target-lang "$tgt"
    --path "$average" --gen-subset test --remove-bpe
    --beam 4 --lenpen 0.6 --length-penalty gnmt # alpha of ((5 + length) / 6)^alpha, as in the authors' code
    --max-len-a 1 --max-len-b 50 # at most the source's length + 50
    --max-tokens 8000 --skip-invalid-size-inputs-valid-test --num-workers 0
)
mkdir -p "$run/eval" && exec 9>"$run/eval/.generate.sh.lock"
flock -n 9 || { echo "generate.sh: another one is running in $run/eval" >&2 && exit 1; }
fairseq-generate "$data/data-bin" "${flags[@]}" "$@" >"$out.log.part"
mv "$out.log.part" "$out.log"
# H-NUMBER, score, tokens: in the order of the test set; then text, which sacreBLEU takes
grep ^H- "$out.log" | sed s/^H-// | sort -n | cut -f 3 >"$out.hyp.tok.part"
mv "$out.hyp.tok.part" "$out.hyp.tok"
sacremoses -q -l "$tgt" detokenize <"$out.hyp.tok" >"$out.hyp.part"
mv "$out.hyp.part" "$out.hyp"
