"""The command line: verbs, exit codes, names of experiments, and what is refused before training.

One process for all cases: a start of fairseq costs seconds.
"""

import dataclasses
import importlib.metadata
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

import vaswani
from vaswani import cli
from vaswani.common import find
from vaswani.common.options import Checked
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.reproduction import FILES

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "configs").glob("*_en_*.yaml"))


def refused(capsys, *argv) -> str:
    """Return the one line on stderr of a command that exits with 1."""
    assert cli.main(list(argv)) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_python_m_vaswani_is_the_command():
    """Of that very Python; its version has one source, the distribution."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "vaswani", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environ)
    version = importlib.metadata.version("vaswani-transformer")
    assert done.stdout == f"vaswani {version}\n" and vaswani.__version__ == version


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_and_option_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0 and f"vaswani {verb}" in capsys.readouterr().out
    module = cli.module_of(verb)
    kinds = map(module.options_for, ([], *zip(FILES))) if verb == "reproduce" else [module.Options]
    for item in (item for kind in kinds for item in dataclasses.fields(kind)):
        assert item.metadata.get("help"), item.name


#: every verb's --help, where no package is installed besides ours
HELP = """
import importlib.abc
import sys

from vaswani import cli

OURS = {"vaswani", "vaswani_transformer", "transformer_check", "transformer_plugin"}


class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in OURS | sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


sys.meta_path.insert(0, Refusal())
for verb in cli.VERBS:
    try:
        code = cli.main([verb, "--help"])
    except SystemExit as end:
        code = end.code
    if code:
        print(f"vaswani {verb} --help exits with {code}", file=sys.stderr)
"""


def test_every_verbs_help_needs_no_other_package():
    """A bare install has torch, numpy and safetensors; five verbs needed tqdm, PyYAML …"""
    done = subprocess.run(
        [sys.executable, "-c", HELP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("sentencepiece", "pip install 'vaswani-transformer[translate]'"),
        ("sacrebleu.metrics", "pip install 'vaswani-transformer[text]'"),
        ("ctranslate2", "pip install 'vaswani-transformer[export]'"),
        ("transformers", "pip install transformers "),
        ("omegaconf", "the extras 'modern' or 'official' and 'text'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(module, wanted, monkeypatch, capsys):
    def run(options):
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", run)
    assert wanted in refused(capsys, "plugin-dir")


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken(args):
        raise ValueError("a bug")

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["plugin-dir"])


def test_what_fairseq_refuses_is_one_sentence_and_what_fails_there_is_not(monkeypatch, capsys):
    """It has no class of its own for users' mistakes: who raised the error tells."""
    from fairseq.data import Dictionary

    def refused_by_fairseq(args):
        Dictionary().add_from_file(io.StringIO("a word without its count\n"))

    def failing_in_fairseq(args):
        Dictionary().add_from_file(None)  # AttributeError: ours is the mistake

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", refused_by_fairseq)
    message = refused(capsys, "plugin-dir")
    assert "Incorrect dictionary format" in message and f"{cli.TRACEBACK}=1 shows" in message
    monkeypatch.setattr("vaswani.commands.plugin_dir.run", failing_in_fairseq)
    with pytest.raises(AttributeError):
        cli.main(["plugin-dir"])
    monkeypatch.setattr("vaswani.commands.plugin_dir.run", refused_by_fairseq)
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(ValueError, match="Incorrect dictionary format"):
        cli.main(["plugin-dir"])


def test_what_numpy_refuses_for_fairseq_is_the_users_and_for_us_a_bug(monkeypatch, capsys):
    """fairseq hands values on as they are."""
    import numpy
    from fairseq.data import data_utils

    def seeded_by_fairseq(args):
        with data_utils.numpy_seed(-1):
            pass

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", seeded_by_fairseq)
    assert "Seed must be between" in refused(capsys, "plugin-dir")
    monkeypatch.setattr("vaswani.commands.plugin_dir.run", lambda args: numpy.random.seed(-1))
    with pytest.raises(ValueError, match="Seed must be between"):
        cli.main(["plugin-dir"])


#: options that may have any finite number
ANY_NUMBER = {"lenpen", "unkpen"}


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_number_of_a_command_has_its_limits(verb):
    """``average --last`` is compared with the checkpoints that there are."""
    module = cli.module_of(verb)
    kinds = map(module.options_for, ([], *zip(FILES))) if verb == "reproduce" else [module.Options]
    for kind in kinds:
        for item in dataclasses.fields(kind):
            if {int, float} & {item.type, *get_args(item.type)} and item.name != "last":
                limits = {"least", "above"} & {k for k, v in item.metadata.items() if v is not None}
                assert issubclass(kind, Checked), kind
                assert limits or item.name in ANY_NUMBER, item.name


@pytest.mark.parametrize(
    "line", ["train small run=caf\udce9", "average caf\udce9", "attention m caf\udce9"]
)
def test_an_argument_that_is_not_utf8_is_refused_by_every_command(line, small, capsys):
    """A run of such a name was trained, and its checkpoints then called damaged."""
    assert "caf\\xe9' is not UTF-8" in refused(capsys, *line.split())
    assert not Path("runs").exists()


def test_experiments_are_found_by_path_and_by_either_spelling(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shipped = ROOT / "configs" / "multi30k_en_de.yaml"
    assert find.find_config("multi30k-en-de") == shipped
    assert find.find_config(str(shipped)) == shipped
    Path("configs").mkdir()
    Path("configs/multi30k_en_de.yaml").write_text("task: {}", encoding="utf-8")
    assert find.find_config("multi30k-en-de") == Path("configs/multi30k_en_de.yaml")


def test_unknown_experiments_name_the_nearest(tmp_path, monkeypatch, capsys):
    """One's own, too, which 'vaswani new' wrote into the current folder."""
    assert "did you mean 'multi30k_en_de'?" in refused(capsys, "train", "multi30-en-de")
    monkeypatch.chdir(tmp_path)
    Path("my_novels.yaml").write_text("task:\n  data: d\nmodel:\n  _name: m\n", encoding="utf-8")
    Path("my_nouns.yaml").write_text("services: {}\n", encoding="utf-8")
    message = refused(capsys, "train", "my-novel")
    assert "did you mean 'my_novels'?" in message and "my_nouns" not in message


@pytest.fixture
def small(tmp_path, tiny_data_bin, monkeypatch) -> Path:
    """Write an experiment on the digits; commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = str(tiny_data_bin)
    table["checkpoint"]["save_dir"] = "runs/small/checkpoints"
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    return path


def test_every_shipped_experiment_is_complete():
    """Each reads without a complaint, with the paper's optimizer (5.3), loss (5.4), and sizes."""
    widths = {"base": 512, "big": 1024, "tatoeba": 192}  # Table 3, and docs/own-text.md's
    for name in SHIPPED:
        config = read_configuration(ROOT / "configs" / f"{name}.yaml")
        assert config.optimizer.adam_betas == "(0.9, 0.98)", name
        assert config.criterion.label_smoothing == 0.1, name
        assert config.dataset.update_epoch_batch_itr is True, name
        assert config.dataset.skip_invalid_size_inputs_valid_test is True, name
        width = next((width for size, width in widths.items() if size in name), 128)
        assert config.model.encoder_embed_dim == config.model.decoder_embed_dim == width, name
        assert config.checkpoint.save_dir == f"runs/{name}/checkpoints"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("optimization.max_updates=3", "'max_update'"),
        ("optimisation.max_update=3", "'optimization'"),
        ("model._name=vaswani_transformer_tinny", "'vaswani_transformer_tiny'"),
        ("criterion._name=vaswani_cross_entropy", "criterion"),
        ("task.data=nowhere", "vaswani prepare"),
        ("dataset.valid_subset=valid2", "'valid2'"),
        (
            "dataset.train_subset=valid",
            "has the text of --valid-subset valid",
        ),
        ("generation.beam=0", "generation.beam must be at least 1, not 0"),
        ("generation.nbest=9", "give generation.beam 9, or a lower generation.nbest"),
        (
            "generation.min_len=9 generation.max_len_a=0 generation.max_len_b=5",
            "generation.max_len_b 5",
        ),
        (
            "task._name=vaswani_translation task.length_penalty=gnmt generation.lenpen=-1",
            "generation.lenpen -1.0 is negative, which task.length_penalty gnmt does not allow",
        ),
    ],
)
def test_a_refused_training_names_its_mistake_and_leaves_no_run(small, override, named, capsys):
    assert named in refused(capsys, "train", str(small), *override.split())
    assert not Path("runs").exists()
