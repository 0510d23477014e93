#!/usr/bin/env bash
# Prepares the data of one experiment and trains it. Stages only; further arguments change the
# experiment (section.key=value, run=NAME).
#
#   scripts/train.sh CONFIG [key=value …]
#   TEXT=FOLDER          where the recipe's text files lie, if it does not make or fetch them
set -euo pipefail

config=${1:?usage: scripts/train.sh CONFIG [key=value …]}
shift
vaswani prepare "$config" ${TEXT:+--text "$TEXT"}
exec vaswani train "$config" "$@"
