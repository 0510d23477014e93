#!/usr/bin/env bash
# commands.sh FOLDER   (the folder of Tatoeba's text that scripts/tatoeba_split.py takes)
set -euo pipefail
export OMP_NUM_THREADS=1
here=$(dirname "${BASH_SOURCE[0]}")
python scripts/tatoeba_split.py "$1" text --copies
python "$here/join.py" text/test_clusters joined
# as packed by an earlier version: config.json does not say how long the training lines are
cp -r models/tatoeba_en_de older
python - <<'PYTHON'
import json
from pathlib import Path
from vaswani.common.files import sha256_of

config, sums = Path("older/config.json"), Path("older/SHA256SUMS")
before = sha256_of(config)
table = json.loads(config.read_text(encoding="utf-8"))
del table["source_lengths"]
config.write_text(json.dumps(table), encoding="utf-8")
sums.write_text(sums.read_text(encoding="utf-8").replace(before, sha256_of(config)))
PYTHON
for count in 2 3 4; do
    for way in never auto older; do
        model=models/tatoeba_en_de split=$way
        [[ $way != older ]] || model=older split=auto
        vaswani translate $model joined/joined$count.en --workers 1 --split-sentences $split \
            --output joined/$way$count.hyp
    done
    for way in auto older; do
        vaswani score --hypotheses joined/$way$count.hyp --references joined/joined$count.de \
            --pair en-de --compare joined/never$count.hyp
    done
done
