"""The command line: verbs, exit codes, names of experiments, and what is refused before training.

One process for all cases: a start of fairseq costs seconds.
"""

import dataclasses
import errno
import importlib.metadata
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import vaswani
from vaswani import cli
from vaswani.decoding.ctranslate2_engine import CTranslate2Engine
from vaswani.decoding.fairseq_engine import FairseqEngine
from vaswani.experiment import find

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "configs").glob("*_en_*.yaml"))


def refused(capsys, *argv) -> str:
    """The one line on stderr of a command that exits with 1."""
    assert cli.main(list(argv)) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_help_names_every_verb_without_importing_torch():
    code = (
        "import sys; from vaswani.cli import main\n"
        "try: main(['--help'])\n"
        "finally: sys.stderr.write(str('torch' in sys.modules or 'fairseq' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stderr == "False"
    assert all(verb in done.stdout for verb in cli.VERBS)


def test_python_m_vaswani_is_the_command():
    """Of that very Python; its version has one source, the distribution."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "vaswani", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environ)
    version = importlib.metadata.version("vaswani-transformer")
    assert done.stdout == f"vaswani {version}\n" and vaswani.__version__ == version


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0
    assert f"vaswani {verb}" in capsys.readouterr().out
    module = cli.module_of(verb)
    for options in (module.Options, *getattr(module, "FORMS", {}).values()):
        given = dataclasses.fields(options)
        assert [item.name for item in given if not item.metadata.get("help")] == []


@pytest.mark.parametrize("on_cpu", [True, False])
def test_translates_help_says_how_many_tokens_a_batch_has(capsys, on_cpu):
    """Those of either kind of model."""
    with pytest.raises(SystemExit):
        cli.main(["translate", "--help"])
    said = capsys.readouterr().out
    for kind in (FairseqEngine, CTranslate2Engine):
        assert f"{kind.batch_tokens.fget(SimpleNamespace(on_cpu=on_cpu)):,}" in said


def test_what_fairseq_uses_of_torchscript_is_not_warned_of(tmp_path):
    """From torch 2.14 on by default, with 2.13 if all warnings are asked for."""
    command = [sys.executable, "-W", "always", "-m", "vaswani", "plan", "demo_en_de"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    assert done.returncode == 1 and "vaswani prepare" in done.stderr
    assert "torch.jit" not in done.stderr


def test_plugin_dir_is_the_folder_fairseq_needs(capsys):
    assert cli.main(["plugin-dir"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder.is_absolute() and (folder / "__init__.py").is_file()
    assert folder.name == "transformer_plugin"


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("sacremoses", "'vaswani-transformer[text]'"),
        ("subword_nmt.apply_bpe", "'vaswani-transformer[text]'"),
        ("hydra", "'vaswani-transformer[modern]' or 'vaswani-transformer[official]'"),
        ("fairseq.tasks", "--no-deps fairseq-fixed (on Python 3.10: fairseq)"),
        ("somebodys", "somebodys"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    package, command, monkeypatch, capsys
):
    requires = ['hydra-core==1.3.2; extra == "modern"', 'torch>=2.6; extra == "modern"']
    requires += ['hydra-core<1.1 ; extra == "official"', "subword-nmt ; extra == 'text'"]
    requires += ['sacremoses; extra == "text"', 'sacrebleu>=2; extra == "text"', "somebody"]

    def missing(options):
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)

    monkeypatch.setattr("importlib.metadata.requires", lambda name: requires)
    monkeypatch.setattr("vaswani.commands.plugin_dir.run", missing)
    said = refused(capsys, "plugin-dir")
    assert f"'{package}' is missing: pip install {command} (in" in said


def test_usage_errors_exit_with_2_and_name_what_is_near(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["trian"])
    assert stop.value.code == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["train", "plan"])
def test_without_an_experiment_the_known_ones_are_named(verb, capsys):
    """argparse alone also asks for ``key=value``, which may be left out."""
    with pytest.raises(SystemExit) as stop:
        cli.main([verb])
    message = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and f"vaswani {verb}: error: CONFIG is missing" in message
    known = message.partition("known: ")[2].split(", ")
    assert set(SHIPPED) <= set(known) and "table3" not in known


def test_output_is_utf_8_whatever_the_locale(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr("vaswani.commands.plugin_dir.plugin_dir", lambda: "Köln")
    assert cli.main(["plugin-dir"]) == 0
    assert written.getvalue() == "Köln\n".encode()


def test_an_interruption_is_one_line_and_130(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", interrupted)
    assert cli.main(["plugin-dir"]) == 130
    assert capsys.readouterr().err.strip().count("\n") == 0


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken(args):
        raise ValueError("a bug")

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["plugin-dir"])


def test_experiments_are_found_by_path_and_by_either_spelling(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shipped = ROOT / "configs" / "multi30k_en_de.yaml"
    assert find.find_config("multi30k-en-de") == shipped
    assert find.find_config("multi30k_en_de.yaml") == shipped
    assert find.find_config(str(shipped)) == shipped
    Path("configs").mkdir()
    Path("configs/multi30k_en_de.yaml").write_text("task: {}", encoding="utf-8")
    assert find.find_config("multi30k-en-de") == Path("configs/multi30k_en_de.yaml")


def test_an_experiment_without_its_data_names_the_command_that_makes_it(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "train", "demo-en-de")
    assert said.endswith("data/demo_en_de/data-bin: make it with 'vaswani prepare demo_en_de'")
    assert "with 'vaswani prepare'" in refused(capsys, "train", "demo-en-de", "task.data=elsewhere")


def test_unknown_experiments_name_the_nearest(tmp_path, monkeypatch, capsys):
    """One's own, too, which 'vaswani new' wrote into the current folder."""
    assert "did you mean 'multi30k_en_de'?" in refused(capsys, "train", "multi30-en-de")
    monkeypatch.chdir(tmp_path)
    Path("my_novels.yaml").write_text("task:\n  data: d\nmodel:\n  _name: m\n", encoding="utf-8")
    Path("my_nouns.yaml").write_text("services: {}\n", encoding="utf-8")
    message = refused(capsys, "train", "my-novel")
    assert "did you mean 'my_novels'?" in message and "my_nouns" not in message


@pytest.mark.parametrize(
    ("content", "message"),
    [("task:\n  data: [1, 2\nmodel: x", "line 3"), ("just words", "sections"), ("", "sections")],
)
def test_bad_yaml_is_one_sentence(tmp_path, content, message, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(content, encoding="utf-8")
    assert message in refused(capsys, "train", str(path))


@pytest.fixture
def small(tmp_path, tiny_data_bin, monkeypatch) -> Path:
    """An experiment on the digits, as a file; commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = str(tiny_data_bin)
    table["checkpoint"]["save_dir"] = "runs/small/checkpoints"
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_experiment_is_complete(name):
    """Each reads without a complaint, with the paper's optimizer (5.3) and loss (5.4)."""
    from vaswani.experiment.fairseq_config import experiment_config

    config = experiment_config(ROOT / "configs" / f"{name}.yaml")
    assert config.optimizer.adam_betas == "(0.9, 0.98)"
    assert config.criterion.label_smoothing == 0.1
    assert config.dataset.update_epoch_batch_itr is True
    widths = {"base": 512, "big": 1024}  # Table 3
    width = next((width for size, width in widths.items() if f"_{size}" in name), 128)
    assert config.model.encoder_embed_dim == config.model.decoder_embed_dim == width
    assert config.checkpoint.save_dir == f"runs/{name}/checkpoints"


@pytest.mark.parametrize("kind", ["demo", "multi30k"])
def test_the_language_pairs_differ_in_their_languages_alone(kind):
    german, french = (
        yaml.safe_load((ROOT / "configs" / f"{kind}_en_{end}.yaml").read_text(encoding="utf-8"))
        for end in ("de", "fr")
    )
    assert french["task"].pop("target_lang") == "fr"
    assert german["task"].pop("target_lang") == "de"
    assert repr(french) == repr(german).replace(f"{kind}_en_de", f"{kind}_en_fr")


def test_both_multi30k_systems_differ_in_the_model_and_our_kernels_alone():
    ours, theirs = (
        yaml.safe_load((ROOT / "configs" / f"multi30k_en_de{end}.yaml").read_text(encoding="utf-8"))
        for end in ("", "_fairseq")
    )
    for table in (ours, theirs):
        table["checkpoint"].pop("save_dir")
        table["criterion"].pop("_name")
        table["optimizer"].pop("_name")  # the same Adam by other kernels
    sizes = theirs.pop("model")
    assert ours.pop("model") == {"_name": "vaswani_transformer_tiny"}
    assert ours == theirs

    from transformer_plugin.config import VaswaniTransformerTinyConfig

    same = {
        key: value for key, value in sizes.items() if key not in ("_name", "share_all_embeddings")
    }
    assert same == {key: getattr(VaswaniTransformerTinyConfig(), key) for key in same}
    assert len(same) == 9


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimization.max_updates=3", "did you mean 'max_update'?"),
        ("optimisation.max_update=3", "did you mean 'optimization'?"),
        ("model._name=vaswani_transformer_tinny", "did you mean 'vaswani_transformer_tiny'?"),
        ("model.droput=0.2", "did you mean 'dropout'?"),
        ("criterion._name=vaswani_cross_entropy", "there is no criterion"),
        ("lr_scheduler.warmup_update=3", "did you mean 'warmup_updates'?"),
        ("optimization.max_update=many", "optimization.max_update"),
        ("max_update=3", "section.key=value"),
        ("model.encoder_layers=0", "encoder"),
        ("model.dropout=1.5", "dropout"),
        ("criterion.label_smoothing=1.5", "label"),
        ("lr_scheduler.warmup_updates=0", "warmup"),
        ("task.data=nowhere", "vaswani prepare"),
        ("task.target_lang=fr", "holds en-de"),
        ("dataset.valid_subset=valid2", "no part 'valid2'"),
        ("run=", "run= is empty"),
    ],
)
def test_what_is_refused_before_training(small, override, message, capsys):
    assert message in refused(capsys, "train", str(small), override)


def test_a_refused_training_leaves_no_run(small, tmp_path, capsys):
    folder = tmp_path / "runs" / "x"
    refused(capsys, "train", str(small), "model.dropout=1.5", f"run={folder}")
    assert not folder.exists()


def test_a_full_disk_is_one_sentence(monkeypatch, capsys):
    def full(args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", full)
    assert cli.main(["plugin-dir"]) == 1
    assert capsys.readouterr().err == (
        "vaswani plugin-dir: writing failed: No space left on device\n"
    )


def test_differing_dictionaries_are_refused(small, tmp_path, tiny_data_bin, capsys):
    import shutil

    other = tmp_path / "not-joined"
    shutil.copytree(tiny_data_bin, other)
    with open(other / "dict.de.txt", "a", encoding="utf-8") as stream:
        stream.write("zehn 1\n")
    assert "--joined-dictionary" in refused(capsys, "train", str(small), f"task.data={other}")


@pytest.mark.parametrize("damage", ["emptied", "cut", "gone", "bin cut"])
def test_a_damaged_data_bin_is_refused(small, tmp_path, tiny_data_bin, damage, capsys):
    import shutil

    other = tmp_path / "damaged"
    shutil.copytree(tiny_data_bin, other)
    if damage == "emptied":
        for path in other.iterdir():
            path.unlink()
        message = "holds no binarised text"
    else:
        path = other / f"train.en-de.de.{'bin' if damage == 'bin cut' else 'idx'}"
        path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:20])
        message = "missing or damaged"
    assert message in refused(capsys, "train", str(small), f"task.data={other}")
