"""The ten bugs of docs/bugs.md, planted in a copy of the sources: vaswani check names each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import planted_bugs as mutants

#: bug → a check that has to find it
FOUND = {
    "embedding-not-scaled": "embedding-scale",
    "causal-mask-missing": "causal-mask",
    "positions-missing": "source-order",
    "warmup-missing": "learning-rate",
    "step-at-the-next-position": "beam-search",
    "labels-not-shifted": "target-shift",
    "residual-missing": "residual-connections",
    "dropout-in-evaluation": "evaluation-dropout",
    "kernel-not-scaled": "equation-1-scale",
    "padding-not-masked": "source-padding",
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", FOUND)
def test_the_quiz_can_be_solved_with_the_check(bug: str, tmp_path: Path) -> None:
    place = mutants.copy_sources(tmp_path / "sources")
    assert mutants.plant(bug, place)
    command = [sys.executable, "-m", "vaswani", "check", "examples/check/fairseq_model.py"]
    variables = {**mutants.environment(place), "OURS": "1"}
    done = subprocess.run(
        [*command, "--json"], cwd=place, env=variables, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    named = [item["id"] for item in checks if item["status"] in ("error", "difference")]
    assert FOUND[bug] in named, named
