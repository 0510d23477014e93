"""Record twenty translations by models/demo_en_de:  python -m tests.recorded.make TEXT

TEXT is the demo's data/demo_en_de/text/test.en.
"""

import json
import sys
from pathlib import Path

from vaswani import Translator

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "models" / "demo_en_de"
RECORD = HERE / "demo_en_de.json"


def main() -> None:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()[:500:25]
    found = Translator.from_pretrained(MODEL).translate(lines)
    rows = [
        {"source": line, "text": one.text, "score": round(one.score, 5)}
        for line, one in zip(lines, found, strict=True)
    ]
    RECORD.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
