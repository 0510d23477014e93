# In an empty folder, with 'vaswani' installed; CONFIGS is the repository's configs/. One core: OMP_NUM_THREADS=1.
set -eu
vaswani prepare demo_en_de
mkdir -p text
for set in train valid test; do
    cp data/demo_en_de/text/$set.en text/
    sed 's/ //g' data/demo_en_de/text/$set.de >text/$set.de
done
own="--source-lang en --target-lang de --train text/train --valid text/valid --test text/test"
vaswani prepare $own --bpe 1000 --out data/unspaced_bpe
vaswani prepare $own --bpe 1300 --subword sentencepiece --out data/unspaced_pieces
for run in unspaced_bpe unspaced_pieces; do
    sed "s/demo_en_de/$run/g" "$CONFIGS/demo_en_de.yaml" >$run.yaml
    vaswani train $run.yaml
    vaswani average $run --last 5
    vaswani generate $run
    vaswani score $run
    paste -d '\n' runs/$run/eval/test.hyp text/test.de | awk 'NR % 2 { hypothesis = $0; next } { same += hypothesis == $0; spaced += hypothesis ~ / / } END { print same, "of", NR / 2, "the same;", spaced, "with a space" }'
done
vaswani score unspaced_pieces --compare unspaced_bpe --json compared.json
