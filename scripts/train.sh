#!/usr/bin/env bash
# Prepares the data of one experiment and trains it, or continues. This script only calls the stages;
# further arguments change the experiment (section.key=value, run=NAME). More: docs/training.md.
#
#   scripts/train.sh CONFIG [key=value …]                     all GPUs of this machine, or its CPU
#   CUDA_VISIBLE_DEVICES=0 scripts/train.sh CONFIG            one GPU
#   PROCESSES=2 scripts/train.sh CONFIG common.cpu=true       a trial of several processes on a CPU
#   NODES=2 NODE_RANK=0 MASTER=HOST:PORT scripts/train.sh CONFIG
#                        several machines: run the same command on each, with its own NODE_RANK
#                        (0, 1, …). HOST is the machine with NODE_RANK 0, PORT any free port on it.
#
#   PROCESSES=N          processes per machine, when several are started (default: one per GPU)
#   TEXT=FOLDER          where the recipe's text files are, if it does not make or fetch them
#
# The machines share this folder (data/ and runs/). NODE_RANK 0 prepares the data unless they are
# complete; the others wait for it, but only 15 minutes: if preparing takes longer, do it beforehand.
# What has changed in the text or the recipe since is prepared by 'vaswani prepare', or with TEXT.
set -euo pipefail

config=${1:?usage: scripts/train.sh CONFIG [key=value …]}
shift
nodes=${NODES:-1}
if [ "$nodes" != 1 ]; then
    : "${NODE_RANK:?NODES=$nodes: which of them is this machine? NODE_RANK=0 for the first}"
    : "${MASTER:?NODES=$nodes: where do they meet? MASTER=HOST:PORT of the first}"
fi

command -v vaswani >/dev/null || {
    echo "train.sh: the command 'vaswani' is not installed; run 'make setup' and activate its" \
        "environment (source .venv/bin/activate)" >&2
    exit 1
}
if [ "${NODE_RANK:-0}" = 0 ]; then
    if [ -n "${TEXT:-}" ]; then
        vaswani prepare "$config" --text "$TEXT"
    else
        vaswani prepare "$config" --if-missing
    fi
fi
if [ "$nodes" != 1 ]; then
    meet=(--nnodes "$nodes" --node_rank "$NODE_RANK")
    meet+=(--master_addr "${MASTER%:*}" --master_port "${MASTER##*:}")
elif [ -n "${PROCESSES:-}" ]; then
    meet=(--standalone --local-addr 127.0.0.1)
else
    exec vaswani train "$config" "$@"
fi
exec torchrun "${meet[@]}" --nproc_per_node "${PROCESSES:-gpu}" \
    -m vaswani train "$config" "$@"
