"""What each side of ``same_as.py`` runs: commands of ``vaswani``, one after another, in one folder.

    python same_as_steps.py OUTPUTS      in an empty folder, with PYTHONPATH at a source tree

Each command runs in a process forked from this one, which has imported the slow libraries: a
refusal then takes a tenth of a second. OUTPUTS gets, for each, NUMBER-VERB with its command line,
its exit code and what it printed on standard output and standard error.
"""

import importlib
import logging
import os
import shutil
import sys
import traceback
from pathlib import Path

PAIRS = {"train": (0, 1600), "valid": (1600, 1800), "test": (1800, 2000)}
#: where a source tree may have the demo's model, and the user-dir of a variant
MODELS = ("models/demo_en_de", "examples/demo_en_de")
VARIANTS = ("examples/user_dirs/relative_positions", "examples/relative_positions")
#: imported once for all commands
SLOW = ("numpy", "torch", "omegaconf", "sacrebleu", "fairseq", "ctranslate2", "matplotlib.figure")

LANGUAGES = ["--source-lang", "en", "--target-lang", "de"]
OWN_TEXT = ["prepare", *LANGUAGES, *(f"--{part}=text/{part}" for part in PAIRS), "--bpe", "500"]
TRAIN = ["train", "demo_en_de", "checkpoint.save_interval_updates=10"]
SMALL = [
    "optimization.max_update=3",
    "model.encoder_embed_dim=64",
    "model.decoder_embed_dim=64",
    "model.encoder_attention_heads=2",
    "model.decoder_attention_heads=2",
]
VARIANT = ["common.user_dir=variant", "model._name=relative_transformer", "model.max_distance=3"]
TRANSLATE = ["translate", "model", "text/short.en"]
EXPORT = ["export", "model", "--lines", "60", "--text", "text/test.en"]
EXPORT += ["--reference", "text/test.de"]
SENTENCE = "The meeting is on the 3rd of March 1987."
PARTS = ["--hypotheses", "text/valid.de", "--references", "text/train.de", "--pair", "en-de"]
COPIES = ["--hypotheses", "text/test.en", "--references", "text/test.de", "--pair", "en-de"]
VERBS = (
    *("plugin-dir", "prepare", "new", "plan", "train", "average", "generate", "score", "pack"),
    *("translate", "export", "check", "attention", "reproduce"),
)


def commands() -> list[list[str]]:
    """Return the commands to compare, in their order."""
    work = [*experiments(), *trainings(), *runs(), *models(), *results()]
    return [*work, *refusals(), ["--help"], *([verb, "--help"] for verb in VERBS)]


def experiments() -> list[list[str]]:
    """Return commands from text to an experiment and its plan."""
    return [
        [*OWN_TEXT, "--out", "data/bpe"],
        [*OWN_TEXT, "--out", "data/bpe"],
        [*OWN_TEXT, "--out", "data/pieces", "--subword", "sentencepiece"],
        ["prepare", "--like", "data/bpe", "--test", "text/valid", "--out", "data/like"],
        ["plugin-dir"],
        ["new", "mine", "--data", "data/bpe"],
        ["plan", "demo_en_de"],
        ["plan", "mine", "--gpus", "2", "--memory", "40", "--tokens-per-second", "10000"],
    ]


def trainings() -> list[list[str]]:
    """Return trainings: whole, in two parts, of fairseq's model, a variant, in bf16, fine-tuned."""
    return [
        [*TRAIN, "run=whole", "optimization.max_update=20"],
        [*TRAIN, "run=parts", "optimization.max_update=10"],
        [*TRAIN, "run=parts", "optimization.max_update=20"],
        [*TRAIN, "run=parts", "optimization.max_update=20"],
        ["train", "demo_en_de", "run=stock", *SMALL, "model._name=transformer_iwslt_de_en"],
        ["train", "demo_en_de", "run=variant", *SMALL, *VARIANT],
        ["train", "demo_en_de", "run=bf16", *SMALL, "model.precision=bf16"],
        ["new", "tuned", "--data", "data/like", "--from", "runs/whole"],
        ["new", "tuned", "--data", "data/bpe", "--from", "runs/whole"],
        ["new", "tuned", "--data", "data/demo_en_de", "--from", "runs/whole"],
        ["train", "tuned", "optimization.max_update=2", "dataset.max_tokens=1000"],
    ]


def processes_of_a_training() -> list[list[str]]:
    """Return the commands that train one model in two processes, each with its rank."""
    place = f"distributed_training.distributed_init_method=file://{Path('rendezvous').absolute()}"
    size = "distributed_training.distributed_world_size=2"
    command = ["train", "demo_en_de", "run=two", *SMALL, place, size]
    return [[*command, f"distributed_training.distributed_rank={rank}"] for rank in range(2)]


def runs() -> list[list[str]]:
    """Return commands from a run to a packed model."""
    return [
        ["average", "runs/whole", "--last", "2"],
        ["average", "runs/whole"],
        ["generate", "runs/whole", "--subset", "valid", "--max-len-a", "0", "--max-len-b", "5"],
        ["generate", "runs/whole", "--subset", "valid", "--max-len-a", "0", "--max-len-b", "5"],
        [
            *["generate", "runs/whole", "--subset", "valid", "--out", "other", "--beam", "2"],
            *["--max-len-a", "0", "--max-len-b", "5", "--precision", "bf16"],
            *["--length-penalty", "gnmt", "--workers", "1"],
        ],
        ["generate", "runs/stock", "--max-len-a", "0", "--max-len-b", "4"],
        ["generate", "runs/variant", "--max-len-a", "0", "--max-len-b", "4"],
        ["score", "runs/whole", "--subset", "valid"],
        ["score", "runs/stock"],
        ["score", *COPIES, "--json", "copies.json"],
        ["score", *COPIES, "--json", "compared.json", "--compare", "text/test.de"],
        ["pack", "runs/whole"],
        ["pack", "runs/whole"],
        ["pack", "runs/stock", "--half"],
        ["pack", "runs/variant"],
    ]


def models() -> list[list[str]]:
    """Return commands that use a packed model or its exports."""
    return [
        [*TRANSLATE, "--scores", "--output", "translated"],
        [*TRANSLATE, "--scores", "--output", "translated"],
        [*TRANSLATE, "--nbest", "2", "--beam", "3", "--print-alignment", "--replace-unk"],
        [*TRANSLATE, "--precision", "bf16", "--workers", "1", "--length-penalty", "gnmt"],
        ["translate", "runs/variant/model", "text/short.en", "--user-dir", "variant"],
        ["translate", "runs/stock/model", "text/short.en", "--max-len-b", "4"],
        [*EXPORT, "--to", "ctranslate2", "--out", "exports/ctranslate2"],
        [*EXPORT, "--to", "ctranslate2", "--out", "exports/int8", "--quantization", "int8"],
        ["translate", "exports/ctranslate2", "text/short.en", "--scores"],
        [*EXPORT, "--to", "fairseq", "--out", "exports/fairseq"],
        [*EXPORT, "--to", "huggingface", "--out", "exports/huggingface"],
        ["attention", "model", SENTENCE, "--out", "attention"],
        ["attention", "runs/whole", SENTENCE, "Das ist es.", "--out", "of_run", "--no-pictures"],
    ]


def results() -> list[list[str]]:
    """Return commands that check models against the paper or plan to reproduce its results."""
    return [
        ["check", "checked.py"],
        ["check", "checked.py", "--json"],
        ["check", "differs.py"],
        ["reproduce", "wmt14-en-de-base", "--dry-run"],
        ["reproduce", "wmt14-en-de-base", "--row", "A-h1", "--dry-run"],
        ["reproduce", "table4", "--dry-run"],
    ]


def refusals() -> list[list[str]]:
    """Return commands that are refused, one of each kind."""
    return [
        # the command line
        ["nonsense"],
        ["train"],
        [*TRANSLATE, "--beam", "0"],
        [*TRANSLATE, "--beam", "2", "--nbest", "5"],
        ["generate", "runs/whole", "--lenpen", "nan"],
        ["new", "caf\udce9", "--data", "data/bpe"],
        ["new", "no name", "--data", "data/bpe"],
        ["new", "mine", "--data", "data/bpe"],
        ["check", "missing.py"],
        ["reproduce", "no-such-result"],
        # an experiment
        ["train", "demo_en_dx"],
        ["train", "twice.yaml"],
        ["train", "demo_en_de", "no_override"],
        ["train", "demo_en_de", "model.encoder_layer=3"],
        ["train", "demo_en_de", "optimization.update_freq=2"],
        ["train", "demo_en_de", "optimization.max_update=many"],
        ["train", "demo_en_de", "model.dropout=2"],
        ["train", "demo_en_de", "optimization.max_update=0"],
        ["train", "demo_en_de", "common.fp16=true"],
        ["train", "demo_en_de", "common.user_dir=nowhere"],
        ["train", "demo_en_de", "task.data=nowhere"],
        ["train", "demo_en_de", "task.source_lang=fr"],
        ["train", "demo_en_de", "run=whole", "model.encoder_layers=3"],
        ["train", "demo_en_de", "run=whole", "checkpoint.restore_file=damaged.pt"],
        ["plan", "demo_en_de", "model.encoder_layer=3"],
        # text
        [*OWN_TEXT, "--out", "data/same", "--target-lang", "en"],
        ["prepare", *LANGUAGES, "--train", "text/train", "--bpe", "10", "--out", "data/less"],
        ["prepare", "--like", "nowhere", "--test", "text/test", "--out", "data/unlike"],
        [*TRANSLATE[:2], "latin1.txt"],
        [*TRANSLATE[:2], "missing.txt"],
        # checkpoints and runs
        ["average", "runs/whole", "--last", "99"],
        ["average", "damaged.pt", "text/test.en"],
        ["generate", "no_run"],
        ["generate", "damaged.pt"],
        ["generate", "runs/whole", "--subset", "none"],
        ["score", "runs/parts"],
        ["score", *COPIES[:2]],
        ["score", *PARTS],
        ["pack", "runs/whole", "--out", "text"],
        # model folders
        ["translate", "text", "text/short.en"],
        ["translate", "altered", "text/short.en"],
        ["translate", "runs/variant/model", "text/short.en"],
        [*TRANSLATE, "--output", "text/test.de"],
        ["translate", "exports/ctranslate2", "text/short.en", "--temperature", "2"],
        ["export", "runs/variant/model", "--to", "ctranslate2", "--text", "text/test.en"],
        ["export", "model", "--to", "fairseq", "--text", "text/empty"],
        [*EXPORT, "--to", "fairseq", "--out", "text"],
        ["attention", "model", SENTENCE, "--out", "text"],
    ]


def first_of(root: Path, names: tuple[str, ...]) -> Path:
    """Return the first of these folders that a source tree has."""
    return next(root / name for name in names if (root / name).is_dir())


def make_inputs(root: Path, check: str) -> None:
    """Copy the files that commands read from the source tree, and write those that they refuse.

    ``check`` is the template of ``vaswani check``, which describes the project's own model.
    """
    shifted = check.replace("model(source, target)", "model(source, target).roll(-1, 1)")
    Path("checked.py").write_text(check, encoding="utf-8")
    Path("differs.py").write_text(shifted, encoding="utf-8")
    shutil.copytree(first_of(root, MODELS), "model")
    shutil.copytree(first_of(root, VARIANTS), "variant")
    shutil.copytree("model", "altered")
    with open("altered/bpecodes", "a", encoding="utf-8") as stream:
        stream.write("x y\n")
    Path("damaged.pt").write_bytes(b"PK\x03\x04 is how a zip file begins")
    Path("latin1.txt").write_bytes("café\n".encode("latin-1"))
    Path("twice.yaml").write_text("task:\n  data: a\n  data: b\nmodel:\n", encoding="utf-8")
    Path("text").mkdir()
    for language in ("en", "de"):
        lines = Path(f"data/demo_en_de/text/train.{language}").read_bytes().splitlines(True)
        for part, (start, end) in PAIRS.items():
            Path(f"text/{part}.{language}").write_bytes(b"".join(lines[start:end]))
        Path(f"text/short.{language}").write_bytes(b"".join(lines[-20:] + [b"\n", b"xyzzy?\n"]))
    Path("text/empty").write_bytes(b"")


def run_forked(command: list[str], record: Path) -> None:
    """Run one command in a process of its own, and record how it ended."""
    finish(command, record, start(command, record))


def start(command: list[str], record: Path) -> int:
    """Start one command in a process of its own, and return the number of the process."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for descriptor, end in ((1, "out"), (2, "err")):
                handle = os.open(f"{record}.{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(handle, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = ["vaswani", *command]
            code = run(command)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def finish(command: list[str], record: Path, child: int) -> None:
    """Wait for a started command, and record how it ended."""
    _, status = os.waitpid(child, 0)
    line = " ".join(["vaswani", *command]).encode(errors="surrogateescape")
    Path(f"{record}.code").write_bytes(b"%s\n%d\n" % (line, os.waitstatus_to_exitcode(status)))


def run(command: list[str]) -> int:
    """Run a command, and return its exit code."""
    from vaswani.cli import main

    try:
        return main(command)
    except SystemExit as end:  # argparse's
        return int(end.code or 0)


def run_all(root: Path, outputs: Path) -> None:
    """Run all commands in the current folder."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    importlib.import_module("vaswani.cli")  # first: it silences warnings of what follows
    for name in SLOW:
        importlib.import_module(name)
    outputs.mkdir()
    run_forked(["prepare", "demo_en_de"], outputs / "000-prepare")
    run_forked(["check", "--template"], outputs / "000-check")
    make_inputs(root, (outputs / "000-check.out").read_text(encoding="utf-8"))
    for number, command in enumerate(commands(), start=1):
        run_forked(command, outputs / f"{number:03}-{command[0].strip('-')}")
    together = processes_of_a_training()
    records = [outputs / f"999-train-rank{rank}" for rank in range(len(together))]
    children = [start(*pair) for pair in zip(together, records, strict=True)]
    for command, record, child in zip(together, records, children, strict=True):
        finish(command, record, child)


if __name__ == "__main__":
    run_all(Path(os.environ["PYTHONPATH"]), Path(sys.argv[1]))
