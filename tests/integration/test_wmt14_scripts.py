"""``scripts/wmt14`` and ``vaswani reproduce --dry-run --fairseq``: the paper's recipe as flags.

Stand-ins for fairseq's commands write down what the scripts give them. The same scripts with the
real commands are in test_reproduce.py.
"""

import fcntl
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf as convert
from omegaconf import OmegaConf

from tests import archives, stock, wmt14_scripts
from vaswani import cli
from vaswani.common.find import find_config
from vaswani.configuration.fairseq_config import read_configuration

#: name of a result → PAIR, SIZE
RESULTS = {
    f"wmt14-en-{target}-{size}": (f"en-{target}", size)
    for target in ("de", "fr")
    for size in ("base", "big")
}
#: what a training depends on
TRAINING = ("common", "task", "model", "criterion", "optimizer", "lr_scheduler")
TRAINING += ("dataset", "distributed_training", "optimization", "checkpoint")
#: what the stand-in for 'vaswani plugin-dir' prints
PLUGIN = "PLUGIN"


@pytest.fixture
def stand_ins(tmp_path) -> Path:
    """Make commands that append their arguments to ``calls``, as one JSON list a line."""
    folder = tmp_path / "commands"
    write = (
        "import json, os, sys; "
        "open(os.environ['CALLS'], 'a').write(json.dumps(sys.argv[1:]) + chr(10))"
    )
    for name in ("fairseq-train", "fairseq-generate", "fairseq-preprocess"):
        wmt14_scripts.write_command(folder, name, f'python -c "{write}" {name} "$@"')
    wmt14_scripts.write_command(folder, "vaswani", f"echo {PLUGIN}")
    return folder


class Place:
    """A folder whose scripts call the stand-ins."""

    def __init__(self, folder: Path, commands: Path) -> None:
        self.folder = folder
        self.commands = commands
        self.calls = folder / "calls"
        self.forked: Sequence[str] = ()

    def run(self, name: str, *arguments: str, **variables: str) -> Any:
        """Run a script; return its exit code and its output."""
        environment = {"CALLS": str(self.calls), **variables}
        return wmt14_scripts.run(
            name,
            *arguments,
            folder=self.folder,
            commands=self.commands,
            variables=environment,
            forked=self.forked,
        )

    def make(self, *names: str) -> None:
        """Make empty files with these names."""
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def last_call(self) -> list[str]:
        """Return the arguments of fairseq's last command, its name first."""
        return json.loads(self.calls.read_text(encoding="utf-8").splitlines()[-1])


@pytest.fixture
def place(tmp_path, stand_ins) -> Place:
    return Place(tmp_path, stand_ins)


def training_configuration(arguments: list[str]) -> dict[str, Any]:
    """Return the configuration that fairseq-train makes of its arguments."""
    words = [stock.PLUGIN if word == PLUGIN else word for word in arguments]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=words)
    config = OmegaConf.to_container(convert(args), resolve=True, enum_to_str=True)
    return {name: config[name] for name in TRAINING}


def printed_commands(text: str) -> dict[str, list[str]]:
    """Return fairseq's commands in a dry run by name, without their redirections."""
    text = text.replace('"$(vaswani plugin-dir)"', PLUGIN).replace("\\\n", " ")
    commands = {}
    for line in text.splitlines():
        words = shlex.split(line.partition(" >")[0], comments=True)
        if words and words[0].startswith("fairseq-"):
            commands[words[0]] = words[1:]
    return commands


def test_each_script_can_be_read_at_once():
    lengths = {}
    for path in wmt14_scripts.SCRIPTS.iterdir():
        lengths[path.name] = len(path.read_text(encoding="utf-8").splitlines())
    assert len(lengths) == 6
    assert not {name: length for name, length in lengths.items() if length > 40}


@pytest.mark.parametrize(
    ("name", "gpus"), [*((name, 8) for name in RESULTS), ("wmt14-en-de-base", 2)]
)
def test_the_script_and_the_dry_run_train_as_the_experiment_says(
    place, capsys, monkeypatch, name, gpus
):
    pair, size = RESULTS[name]
    experiment = name.replace("-", "_")
    changes = [
        f"distributed_training.distributed_world_size={gpus}",
        f"optimization.update_freq=[{8 // gpus}]",
    ]
    config = read_configuration(find_config(experiment), changes)
    expected = OmegaConf.to_container(config, resolve=True, enum_to_str=True)

    data = f"wmt14_{pair.replace('-', '_')}"
    place.make(f"data/{data}/data-bin/dict.en.txt", f"runs/{data}_{size}/checkpoints/a.pt")
    done = place.run("train", PAIR=pair, SIZE=size, GPUS=str(gpus))
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(place.folder)
    capsys.readouterr()
    assert cli.main(["reproduce", name, "--dry-run", "--fairseq", "--gpus", str(gpus)]) == 0
    printed = printed_commands(capsys.readouterr().out)

    for words in (place.last_call()[1:], printed["fairseq-train"]):
        for section, table in training_configuration(words).items():
            differences = {
                key: (value, expected[section].get(key))
                for key, value in table.items()
                if value != expected[section].get(key)
            }
            assert not differences, section


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("name", ["wmt14-en-de-base", "wmt14-en-fr-big"])
def test_the_script_and_the_dry_run_search_as_the_paper_says(place, capsys, monkeypatch, name):
    pair, size = RESULTS[name]
    experiment = name.replace("-", "_")
    average = "checkpoint_average_last20.pt" if size == "big" else "checkpoint_average_last5.pt"
    checkpoint = f"runs/{experiment}/checkpoints/{average}"
    place.make(checkpoint)
    place.run("generate", PAIR=pair, SIZE=size)
    monkeypatch.chdir(place.folder)
    capsys.readouterr()
    assert cli.main(["reproduce", name, "--dry-run", "--fairseq"]) == 0
    printed = printed_commands(capsys.readouterr().out)["fairseq-generate"]
    for words in (place.last_call()[1:], printed):
        words = [stock.PLUGIN if word == PLUGIN else word for word in words]
        args = options.parse_args_and_arch(options.get_generation_parser(), input_args=words)
        assert (args.beam, args.lenpen, args.length_penalty) == (4, 0.6, "gnmt")
        assert (args.max_len_a, args.max_len_b) == (1, 50)
        assert (args.path, args.gen_subset) == (checkpoint, "test")
        assert (args.task, args.target_lang) == ("vaswani_translation", pair[3:])


def test_a_dry_run_takes_the_options_of_a_row_and_of_the_command_line(capsys):
    arguments = ["wmt14-en-de-base", "--row", "B-dk16", "model.precision=bf16", "--gpus", "4"]
    assert cli.main(["reproduce", *arguments, "--dry-run", "--fairseq"]) == 0
    out = capsys.readouterr().out
    words = training_configuration(printed_commands(out)["fairseq-train"])
    assert (words["model"]["head_key_dim"], words["model"]["precision"]) == (16, "bf16")
    assert words["optimization"]["update_freq"] == [2]
    assert "vaswani average" not in out and "--gen-subset valid" in out, "Table 3 (6.2)"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["wmt14-en-de-base", "--fairseq"], "--dry-run"),
        (["wmt14-en-de-base", "--dry-run", "--fairseq", "--gpus", "3"], "--gpus 3"),
        (["table4", "--dry-run", "--fairseq"], "Table 4"),
    ],
)
def test_what_has_no_commands_of_fairseqs_is_refused(capsys, arguments, named):
    assert cli.main(["reproduce", *arguments]) == 1
    out, err = capsys.readouterr()
    assert named in err and not out


# ---- outputs that exist, and stops --------------------------------------------------------------

DATA, RUN = "data/wmt14_en_de", "runs/wmt14_en_de_base"
#: script → its output, and what it needs
FILES = {
    "prepare": (f"{DATA}/data-bin/dict.en.txt", ""),
    "train": (f"{RUN}/trained", f"{DATA}/data-bin/dict.en.txt"),
    "average": (f"{RUN}/checkpoints/checkpoint_average_last5.pt", ""),
    "generate": (f"{RUN}/eval/test.hyp", f"{RUN}/checkpoints/checkpoint_average_last5.pt"),
    "score": (f"{RUN}/eval/scores", f"{RUN}/eval/test.hyp"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_stage_whose_output_exists_is_skipped_in_words(place, name):
    place.make(FILES[name][0])
    done = place.run(name)
    assert done.returncode == 0 and "skipped" in done.stderr
    assert not place.calls.exists()


@pytest.mark.parametrize("name", [name for name, (_, needs) in FILES.items() if needs])
def test_a_stage_without_its_input_names_the_script_before(place, name):
    done = place.run(name)
    order = list(FILES)
    assert done.returncode == 1
    assert f"{order[order.index(name) - 1]}.sh" in done.stderr
    assert not place.calls.exists() and not (place.folder / "runs").exists()


@pytest.mark.parametrize(
    ("name", "variables", "named"),
    [
        ("prepare", {"PAIR": "en-cs"}, "en-cs"),
        ("train", {"SIZE": "huge"}, "huge"),
        ("train", {"GPUS": "3"}, "3"),
        ("average", {"SIZE": "huge"}, "huge"),
    ],
)
def test_an_unknown_choice_is_refused(place, name, variables, named):
    place.make(f"{DATA}/data-bin/dict.en.txt", "data/wmt14_en_cs/nothing")
    done = place.run(name, **variables)
    assert done.returncode == 1 and named in done.stderr and "choose" in done.stderr
    assert not place.calls.exists()


def test_a_training_that_failed_is_not_taken_for_finished(place):
    place.make(f"{DATA}/data-bin/dict.en.txt", f"{RUN}/checkpoints/checkpoint_last.pt")
    wmt14_scripts.write_command(place.commands, "fairseq-train", "exit 3")
    assert place.run("train").returncode == 3
    assert not (place.folder / RUN / "trained").exists()


def test_a_search_that_failed_leaves_no_translations(place):
    place.make(FILES["generate"][1])
    wmt14_scripts.write_command(place.commands, "fairseq-generate", "echo 'H-0\t-1\tA'; exit 3")
    assert place.run("generate").returncode == 3
    names = [path.name for path in (place.folder / RUN / "eval").glob("test*")]
    assert names == ["test.log.part"]


@pytest.mark.parametrize("name", ["prepare", "train", "generate"])
def test_a_second_start_is_refused(place, name):
    output, needs = FILES[name]
    place.make(needs or "data/other")
    folder = (place.folder / output).parent
    folder = folder.parent if name == "prepare" else folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{name}.sh.lock", "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        done = place.run(name)
    assert done.returncode == 1 and "another one is running" in done.stderr
    assert not place.calls.exists()


def odd_archives(www: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the small archives, one with a few lines of the real ones' unusual text."""
    english = ["a\u00a0b\u2007c\u202fd", "ends\u2028here\u2029and\u0085there \u009c", "\ufefffirst"]
    english += ["nul\0tab\tvt\x0bfs\x1cdel\x7f", "", " \u200b\u00ad", "cr\r", "not \udcff", "ok"]
    english += ["word " * 251, "word " * 250, "a b c d e f g h i j", "x" * 1001, "x" * 1000]
    english += ["soft\u00adhyphen", "@-@ </s> <unk>", "wide\u3000one", "no end"]
    german = [f"Zeile {number}" for number in range(len(english))]
    german[8] = "nicht \udcff"
    german[9] = german[10] = "Wort " * 60
    german[11:14] = ["a", "x", "x"]
    content = archives.content

    def odd_content(part: str, name: str, lang: str, count: int) -> bytes:
        data = content(part, name, lang, count)
        if part != "commoncrawl" or lang not in ("en", "de"):
            return data
        lines = english if lang == "en" else german
        return data + "\n".join(lines).encode("utf-8", "surrogateescape")

    monkeypatch.setattr(archives, "content", odd_content)
    archives.offer(www, 40)


def test_odd_text_is_prepared_as_by_vaswani_prepare_and_a_stop_leaves_nothing_half_written(
    tmp_path, monkeypatch, capsys
):
    www = tmp_path / "www"
    odd_archives(www, monkeypatch)
    there = Place(tmp_path / "scripts", tmp_path / "commands")
    there.forked = ["fairseq-preprocess", "sacremoses"]
    there.folder.mkdir()
    wmt14_scripts.serve_with_curl(there.commands, www)
    wmt14_scripts.write_command(there.commands, "subword-nmt", "echo half; exit 3")
    stopped = there.run("prepare")
    assert stopped.returncode == 3
    theirs = there.folder / DATA
    assert not (theirs / "codes").exists() and (theirs / "tok" / "train.de").exists()
    (there.commands / "subword-nmt").unlink()
    done = there.run("prepare")
    assert done.returncode == 0, done.stderr
    assert not list(theirs.rglob("*.part"))

    with archives.Server(www) as server:
        manifest = archives.manifest(www, server.base, tmp_path / "manifest.yaml")
        monkeypatch.chdir(tmp_path)
        assert stock.vaswani("prepare", "wmt14_en_de", "--manifest", manifest, "--workers", 1) == 0
    ours = tmp_path / DATA
    for path in (theirs / "codes", *(theirs / "bpe").iterdir(), theirs / "data-bin/dict.en.txt"):
        assert path.read_bytes() == (ours / path.relative_to(theirs)).read_bytes(), path.name
