"""A result of Tables 2 and 3 in fairseq's own commands: ``reproduce NAME --dry-run --fairseq``.

The commands are those of ``scripts/wmt14``, with the options of the experiment, of the row of Table
3 and of the command line. A test compares the two.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from transformer_plugin.config import flag
from vaswani.common.errors import UserError
from vaswani.common.find import find_config
from vaswani.common.yaml_tables import Sections, read_yaml
from vaswani.configuration.fairseq_config import parse_overrides
from vaswani.folders.data_bin import SPLITS
from vaswani.folders.prepared_text import SUBWORDS, PreparedText
from vaswani.folders.search_options import GPU_BATCH
from vaswani.planning.arithmetic import PAPER_GPUS
from vaswani.reproduction.full_size import AVERAGED, PARSER, Reproduction, find_reproduction
from vaswani.reproduction.options import Options

#: section of an experiment → the flag that names its component
COMPONENTS = {
    "task": "--task",
    "model": "--arch",
    "criterion": "--criterion",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}
#: what fairseq-train does not read: hydra's own section, and that of decoding
NOT_FOR_TRAINING = ("hydra", "generation")
#: fairseq makes a flag without a value of each boolean, except this one
WITH_VALUE = "update_epoch_batch_itr"
#: found when the command is run, wherever the package is
PLUGIN = '--user-dir "$(vaswani plugin-dir)"'


def run(options: Options) -> int:
    """Print the commands of every stage, to be read, edited and run by a shell."""
    if not options.dry_run:
        raise UserError("--fairseq only prints commands: give --dry-run, too")
    target = find_reproduction(options)
    if target.experiment == PARSER:
        raise UserError("--fairseq supports Tables 2 and 3, not Table 4: leave out --fairseq")
    on_cpu = bool(target.config.common.cpu)
    gpus = options.gpus or (1 if on_cpu else PAPER_GPUS)
    if PAPER_GPUS % gpus:
        raise UserError(
            f"--gpus {gpus} does not divide {PAPER_GPUS}, so no --update-freq gives the paper's "
            "batch size: give 1, 2, 4 or 8, or leave out --fairseq to plan another batch size"
        )
    stages = [preprocess(target), train(target, gpus)]
    if not target.row:
        stages.append(average(target))
    print("\n\n".join([*stages, generate(target), score(target)]))
    return 0


def preprocess(target: Reproduction) -> str:
    """Return the command that binarises subwords, and name the command that makes the subwords."""
    task = target.config.task
    text = PreparedText.around(target.data_bin)
    folder = quote(text.folder)
    pair = f"{task.source_lang}-{task.target_lang}"
    recipe = target.experiment.rpartition("_")[0]
    prefixes = []
    for split in SPLITS:
        prefixes.append(f"--{split}pref {quote(text.stage(SUBWORDS) / split)}")
    return command(
        f"# subwords: PAIR={pair} scripts/wmt14/prepare.sh, which ends with this command; or\n"
        f"# vaswani prepare {recipe} --out {folder}, which needs no fairseq-preprocess\n"
        "fairseq-preprocess",
        f"--source-lang {task.source_lang} --target-lang {task.target_lang} --joined-dictionary",
        " ".join(prefixes),
        f"--destdir {quote(target.data_bin)}",
    )


def train(target: Reproduction, gpus: int) -> str:
    """Return ``fairseq-train`` with every value of the experiment that is not fairseq's default."""
    sections = training_sections(target, gpus)
    lines = [PLUGIN]
    for name, options in sections.items():
        words = flags(name, options)
        if words:
            lines.append(shlex.join(words))
    return command(f"fairseq-train {quote(target.data_bin)}", *lines)


def training_sections(target: Reproduction, gpus: int) -> Sections:
    """Return the experiment's sections, as written and then changed, for a number of GPUs."""
    table = read_yaml(find_config(target.experiment))
    for name in NOT_FOR_TRAINING:
        table.pop(name, None)
    del table["common"]["user_dir"]
    table["checkpoint"]["save_dir"] = str(target.run.checkpoints)
    table["optimization"]["update_freq"] = [PAPER_GPUS // gpus]
    table["distributed_training"] = {"distributed_world_size": gpus}
    changed = OmegaConf.merge(table, parse_overrides(target.changes))
    sections: Sections = OmegaConf.to_container(changed)  # type: ignore[assignment]
    del sections["task"]["data"]
    return sections


def flags(section: str, options: Mapping[str, Any]) -> list[str]:
    """Return a section's options as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        if name == "_name":
            words += [COMPONENTS[section], str(value)]
        elif isinstance(value, bool) and name != WITH_VALUE:
            words += [flag(name)] if value else []
        elif isinstance(value, list):
            words += [flag(name), ",".join(map(str, value))]
        elif value is not None:
            words += [flag(name), str(value)]
    return words


def average(target: Reproduction) -> str:
    """Return the command that averages the last checkpoints (6.1)."""
    return f"vaswani average {quote(target.run.folder)} --last {AVERAGED[target.size]}"


def generate(target: Reproduction) -> str:
    """Return ``fairseq-generate`` with the paper's search, then commands that sort its output."""
    config = target.config
    search = config.generation
    lang = config.task.target_lang
    translations = target.run.translations(target.subset)
    log, tokens, text = map(quote, (translations.log, translations.tokens, translations.text))
    fairseq_generate = command(
        f"mkdir -p {quote(target.run.evaluation)}\nfairseq-generate {quote(target.data_bin)}",
        f"{PLUGIN} --task {config.task._name}" + (" --cpu" if config.common.cpu else ""),
        f"--source-lang {config.task.source_lang} --target-lang {lang}",
        f"--path {quote(target.checkpoint)} --gen-subset {target.subset} --remove-bpe",
        f"--beam {search.beam} --lenpen {search.lenpen:g} "
        f"--length-penalty {config.task.length_penalty}",
        f"--max-len-a {search.max_len_a:g} --max-len-b {search.max_len_b}",
        f"--max-tokens {GPU_BATCH} --skip-invalid-size-inputs-valid-test --num-workers 0 >{log}",
    )
    return (
        f"{fairseq_generate}\n"
        f"grep ^H- {log} | sed s/^H-// | sort -n | cut -f 3 >{tokens}\n"
        f"sacremoses -q -l {lang} detokenize <{tokens} >{text}"
    )


def score(target: Reproduction) -> str:
    """Return commands for sacreBLEU of text, then tokenised and compound-split BLEU of tokens."""
    prepared = PreparedText.around(target.data_bin)
    language = target.config.task.target_lang
    translations = target.run.translations(target.subset)
    hypotheses, hypothesis_tokens = map(quote, (translations.text, translations.tokens))
    metrics = "--metrics bleu chrf --width 2 --format text"
    tokens = "--tokenize none --smooth-method none --force --width 2 --format text"
    compounds = r"LC_ALL=C sed 's/\(\S\)-\(\S\)/\1 ##AT##-##AT## \2/g'"
    references = quote(prepared.tokens(target.subset, language))
    sentences = quote(prepared.sentences(target.subset, language))
    return "\n".join(
        [
            f"sacrebleu {sentences} --input {hypotheses} {metrics}",
            f"sacrebleu {references} --input {hypothesis_tokens} {tokens}",
            command(
                f"sacrebleu <({compounds} {references})",
                f"--input <({compounds} {hypothesis_tokens}) {tokens}",
            ),
        ]
    )


def command(*lines: str) -> str:
    """Return one command over several lines of a shell."""
    return " \\\n    ".join(lines)


def quote(path: Path) -> str:
    """Return a path as a word of a shell."""
    return shlex.quote(str(path))
