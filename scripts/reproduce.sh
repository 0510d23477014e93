#!/usr/bin/env bash
# Reproduces one of the paper's results: plan → prepare → train → average → generate → score → pack.
# The same command continues; when all is done, it only shows the scores. More: docs/reproduce.md.
#
#   scripts/reproduce.sh wmt14-en-de-base --dry-run       what it would do, and what that takes
#   scripts/reproduce.sh wmt14-en-de-base|wmt14-en-de-big|wmt14-en-fr-base|wmt14-en-fr-big
#                        [--gpus N] [--row ROW of Table 3] [--help] [key=value …]
set -euo pipefail

command -v vaswani >/dev/null || {
    echo "reproduce.sh: the command 'vaswani' is not installed; run 'make setup' and activate its" \
        "environment" >&2
    exit 1
}
exec vaswani reproduce "$@"
