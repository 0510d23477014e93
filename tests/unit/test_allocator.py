"""The process's allocator is changed by commands, and never by a program that imports a model."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from tests.models import config, dictionary
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from vaswani_transformer.fast import malloc

ROOT = Path(__file__).resolve().parents[2]

FREED = """
import sys, torch
from vaswani import Translator
if sys.argv[1] == "command":
    from vaswani_transformer.fast.malloc import keep_freed_memory
    keep_freed_memory()
else:
    Translator.from_pretrained(sys.argv[1]).translate(["The house is old."])

def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024

before = resident()
tensors = [torch.ones(2 * 2**20) for _ in range(60)]  # 8 MB each
assert resident() - before > 450
del tensors
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
@pytest.mark.parametrize("kind", ["library", "command"])
def test_a_translator_gives_memory_back(kind: str) -> None:
    """480 MB are freed; only a command keeps them."""
    argument = "command" if kind == "command" else str(ROOT / "models" / "demo_en_de")
    command = [sys.executable, "-c", FREED, argument]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kept = int(done.stdout)
    assert kept < 100 if kind == "library" else kept > 400


@pytest.mark.parametrize(
    ("program", "calls"), [("/bin/fairseq-train", 2), ("/bin/jupyter", 0), ("-c", 0)]
)
def test_the_task_changes_it_in_fairseqs_commands_alone(program, calls, monkeypatch) -> None:
    """Before a training, and before a search."""
    called = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: called.append(1))
    monkeypatch.setattr(sys, "argv", [program])
    words = dictionary()
    task = CheckedTranslationTask(TranslationConfig(), words, words)
    section = config()
    section._name = "vaswani_transformer"
    model = task.build_model(OmegaConf.create({"model": OmegaConf.structured(section)}).model)
    task.build_generator([model], GenerationConfig())
    assert len(called) == calls


def test_the_command_translate_changes_it(trained_workplace, cli, monkeypatch) -> None:
    called = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: called.append(1))
    monkeypatch.chdir(trained_workplace)
    assert cli("translate", "model", "data/digits/text/test.en").code == 0
    assert called
