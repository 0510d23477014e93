#!/usr/bin/env bash
# Scores newstest2014 in three ways (docs/scoring.md): sacreBLEU and chrF of text, to report; BLEU of tokens,
# to compare with Table 2's En-Fr, 38.1 and 41.8; and with compounds split, with its En-De, 27.3 and 28.4.
#   PAIR=en-de|en-fr SIZE=base|big scripts/wmt14/score.sh
set -euo pipefail
pair=${PAIR:-en-de} size=${SIZE:-base} && tgt=${pair#*-}
data=data/wmt14_${pair/-/_} eval=runs/wmt14_${pair/-/_}_$size/eval
if [ -e "$eval/scores" ]; then cat "$eval/scores" && echo "score.sh: skipped, $eval/scores exists" >&2 && exit; fi
[ -e "$eval/test.hyp" ] || { echo "score.sh: no $eval/test.hyp; run generate.sh" >&2 && exit 1; }
# the references are also sacreBLEU's own: --test-set wmt14/full --language-pair en-de
text() { sacrebleu "$data/text/test.$tgt" --input "$eval/test.hyp" --metrics bleu chrf --width 2 --format text; }
# tokens as they are, no smoothing: the formula of Moses' multi-bleu.perl
tokens() { sacrebleu "$1" --input "$2" --tokenize none --smooth-method none --force --width 2 --format text; }
# as in tensor2tensor's get_ende_bleu.sh: a-b → a ##AT##-##AT## b (in bytes, as Perl reads them)
compounds() { LC_ALL=C sed 's/\(\S\)-\(\S\)/\1 ##AT##-##AT## \2/g' "$1"; }
{
    echo "text:" && text
    echo "tokens:" && tokens "$data/tok/test.$tgt" "$eval/test.hyp.tok"
    echo "tokens, compounds split:"
    tokens <(compounds "$data/tok/test.$tgt") <(compounds "$eval/test.hyp.tok")
} >"$eval/scores.part"
mv "$eval/scores.part" "$eval/scores"
cat "$eval/scores"
