"""Training takes no more memory the longer it goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--optimizer", "vaswani_adam", "--no-epoch-checkpoints", "--disable-validation"]


LONG = """
import sys
from tests import stock
from pathlib import Path
from fairseq.trainer import Trainer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

after, original = [], Trainer.train_step
def train_step(self, *args, **kwargs):
    result = original(self, *args, **kwargs)
    after.append(resident())
    return result
Trainer.train_step = train_step
data, folder, *flags = sys.argv[1:]
stock.train(Path(data), Path(folder), *flags)
print(len(after), max(after[:250]), max(after[-50:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_memory_is_flat(tiny_data_bin, tmp_path, precision):
    """500 updates take what 250 took, but for 2 % or 10 MB."""
    flags = [*FLAGS, "--max-update", "500", "--no-save", "--precision", precision]
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(tiny_data_bin), str(tmp_path), *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    updates, early, late = map(float, done.stdout.split()[-3:])
    assert updates == 500
    assert late < early + max(10, 0.02 * early)
