"""The ten bugs of docs/bugs.md, planted in a copy of the sources: vaswani check names each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import planted_bugs as mutants

#: bug → a check that has to find it
FOUND = {
    "embedding-not-scaled": "embeddings are multiplied by √d_model",
    "causal-mask-missing": "later target words change nothing",
    "positions-missing": "the order of the source matters",
    "warmup-missing": "the learning rate is equation 3",
    "step-at-the-next-position": "a translation is never worse than the greedy one",
    "labels-not-shifted": "the decoder's input is the target shifted right",
    "residual-missing": "the norm comes after the sum: LayerNorm(x + Sublayer(x))",
    "dropout-in-evaluation": "dropout is active only in training",
    "kernel-not-scaled": "scores are divided by √d_k",
    "padding-not-masked": "source padding changes nothing",
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", FOUND)
def test_the_quiz_can_be_solved_with_the_check(bug: str, tmp_path: Path) -> None:
    place = mutants.copy_sources(tmp_path / "sources")
    assert mutants.plant(bug, place)
    command = [sys.executable, "-m", "vaswani", "check", "transformer_check/known/fairseq_model.py"]
    variables = {**mutants.environment(place), "OURS": "1"}
    done = subprocess.run(
        [*command, "--json"], cwd=place, env=variables, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    named = [item["check"] for item in checks if item["status"] in ("error", "differs")]
    assert FOUND[bug] in named, named
