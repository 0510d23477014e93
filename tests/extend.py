"""The files that docs/extend.md has its reader write, and rotary positions, to which it points."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "extend.md"
FILES: dict[str, str] = dict(
    re.findall(
        r"^`([\w/]+\.py)`:\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
)
"""Each file's text, by its name."""
FILES["rotary.py"] = (ROOT / "experiments" / "systems" / "rotary.py").read_text(encoding="utf-8")
VARIANTS = {
    "gelu": "GeluTransformer",
    "rotary": "RotaryTransformer",
    "alibi": "AlibiTransformer",
    "pre_norm": "PreNormTransformer",
}
"""By the name of its file, without the ending."""


def module(name: str) -> ModuleType:
    """Execute one of the files as a module."""
    found = ModuleType(name)
    exec(compile(FILES[f"{name}.py"], f"{PAGE}: {name}.py", "exec"), vars(found))
    return found


def variant(name: str) -> Any:
    """Return the variant that a file defines, a subclass of ``Transformer``."""
    return getattr(sys.modules.get(name) or module(name), VARIANTS[name])
