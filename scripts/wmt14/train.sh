#!/usr/bin/env bash
# Trains the paper's base or big model (sections 3 and 5), or continues from checkpoint_last.pt:
#   PAIR=en-de|en-fr SIZE=base|big GPUS=1|2|4|8 scripts/wmt14/train.sh [flags of fairseq-train …]
# Flags given here override those below: --precision bf16 for an A100, H100 or later; on one GPU with at least
# 24 GB (big: 40) also --max-tokens 28672 --update-freq 1, the same batch in one pass instead of eight.
# --init, --batch-tokens, --save-all-last, --length-penalty and --precision are options of this plugin.
set -euo pipefail
pair=${PAIR:-en-de} size=${SIZE:-base} gpus=${GPUS:-8}
data=data/wmt14_${pair/-/_} run=runs/wmt14_${pair/-/_}_$size
case $size-$pair in # --arch sets dropout: 0.1; big 0.3 (Table 3), for En-Fr 0.1 (6.1); and shares the embeddings (3.4)
    base-*) arch=vaswani_transformer updates=100000 interval=1500 averaged=5 all_last=7000 ;;
    big-en-fr) arch=vaswani_transformer_big_en_fr updates=300000 interval=600 averaged=20 all_last=12000 ;;
    big-*) arch=vaswani_transformer_big updates=300000 interval=600 averaged=20 all_last=12000 ;;
    *) echo "train.sh: there is no size $size; choose base or big" >&2 && exit 1 ;;
esac
((gpus > 0 && 8 % gpus == 0)) || { echo "train.sh: GPUS is $gpus; choose 1, 2, 4 or 8" >&2 && exit 1; }
[ ! -e "$run/trained" ] || { echo "train.sh: skipped, $run/trained exists; remove it to redo" >&2 && exit; }
[ -e "$data/data-bin" ] || { echo "train.sh: no $data/data-bin; run prepare.sh" >&2 && exit 1; }
mkdir -p "$run" && exec 9>"$run/.train.sh.lock" # held until fairseq-train has ended
flock -n 9 || { echo "train.sh: another one is running in $run" >&2 && exit 1; }
flags=(
    --user-dir "$(vaswani plugin-dir)" --arch "$arch" --init fairseq # initial weights: see docs/fidelity.md
    --task vaswani_translation --source-lang "${pair%-*}" --target-lang "${pair#*-}" --length-penalty gnmt
    --criterion vaswani_label_smoothed_cross_entropy --label-smoothing 0.1 # epsilon_ls (5.4)
    --optimizer vaswani_adam --adam-betas "(0.9, 0.98)" --adam-eps 1e-9 --clip-norm 0 # 5.3; no clipping
    --lr-scheduler vaswani_inverse_sqrt --warmup-updates 4000 # equation 3 gives the rate: there is no --lr
    # 8 × 3,584 = 28,672 tokens a side with padding, about 25,000 without (5.1); fewer GPUs add gradients up
    --max-tokens 3584 --update-freq "$((8 / gpus))" --distributed-world-size "$gpus"
    --batch-tokens 25000 # only warns if an update has 10 % more or fewer
    --max-update "$updates" --seed 1 # 12 hours and 3.5 days on 8 P100 (5.2)
    # an interval is ten minutes at the paper's speed (5.2); until the last updates, saves are ten minutes apart here, too
    --save-interval-updates "$interval" --keep-interval-updates "$((averaged + 1))" --save-all-last "$all_last"
    --save-interval 1000 --no-epoch-checkpoints --save-dir "$run/checkpoints"
    --update-epoch-batch-itr True # a stopped run goes on with the same batches
    --load-checkpoint-on-all-dp-ranks # each process reads the checkpoint itself
    --max-tokens-valid 8192 --skip-invalid-size-inputs-valid-test --num-workers 2
    --log-format json --log-interval 100
)
fairseq-train "$data/data-bin" "${flags[@]}" "$@"
touch "$run/trained"
