"""Each option of fairseq-generate that the documentation calls working changes what it should.

One that cannot work is refused in one sentence, and one that changes nothing is named in a warning.
Alignments, ensembles, references and unknown words are in test_generation_options.py.
"""

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from fairseq import options, tasks
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask

from tests import stock
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.config import ConfigError

TASKS = {"translation": [], "ours": ["--task", "vaswani_translation"]}
SHORT = ["--max-len-b", "9"]
Texts = Dict[int, List[List[str]]]


def texts(lines: List[str]) -> Texts:
    """Sentence number → the words of each of its hypotheses."""
    found = stock.results(lines, "H").items()
    return {number: [text.split() for text in columns[1::2]] for number, columns in found}


def best(lines: List[str]) -> Dict[int, List[str]]:
    return {number: hypotheses[0] for number, hypotheses in texts(lines).items()}


def scored(lines: List[str]) -> List[Tuple[float, List[float]]]:
    """Of each sentence its score and those of its tokens."""
    scores = [float(columns[0]) for columns in stock.results(lines, "H").values()]
    tokens = [[float(t) for t in c[0].split()] for c in stock.results(lines, "P").values()]
    return list(zip(scores, tokens, strict=True))


def sources(lines: List[str], letter: str = "S") -> Dict[int, List[str]]:
    return {n: columns[0].split() for n, columns in stock.results(lines, letter).items()}


# --- what each option has to change: flags, the flags to compare with, and how -------------------


def several(count: int) -> Callable[..., None]:
    def check(before: List[str], after: List[str]) -> None:
        assert {len(hypotheses) for hypotheses in texts(after).values()} == {count}
        assert {len(hypotheses) for hypotheses in texts(before).values()} != {count}

    return check


def first_words_differ(before: List[str], after: List[str]) -> None:
    """So strongly kept apart, the four hypotheses of a sentence begin with four words."""
    for hypotheses in texts(after).values():
        assert len({words[0] for words in hypotheses}) == 4
    assert any(len({w[0] for w in hypotheses}) < 4 for hypotheses in texts(before).values())


def power(lenpen: float) -> Callable[..., None]:
    def check(before: List[str], after: List[str]) -> None:
        for score, tokens in scored(after):
            assert score == pytest.approx(sum(tokens) / len(tokens) ** lenpen, abs=2e-3)

    return check


def lengths(shortest: int, longest: int) -> Callable[..., None]:
    def check(before: List[str], after: List[str]) -> None:
        assert all(shortest <= len(words) <= longest for words in best(after).values())
        assert not all(shortest <= len(words) <= longest for words in best(before).values())

    return check


def half_the_source(before: List[str], after: List[str]) -> None:
    longest = max(len(words) for words in sources(after).values())
    assert max(map(len, best(after).values())) <= (longest + 1) / 2 + 1
    assert max(map(len, best(before).values())) > (longest + 1) / 2 + 1


def flatter(before: List[str], after: List[str]) -> None:
    """Greedy search finds the same words, of which each is less likely."""
    assert best(after) == best(before)
    for (_, old), (_, new) in zip(scored(before), scored(after), strict=True):
        assert new[0] < old[0]


def only_unknown(before: List[str], after: List[str]) -> None:
    assert {word for words in best(after).values() for word in words} == {"<unk>"}


def the_same(before: List[str], after: List[str]) -> None:
    assert best(after) == best(before)


def other(before: List[str], after: List[str]) -> None:
    changed = [n for n, words in best(before).items() if best(after)[n] != words]
    assert len(changed) > 5


def as_long_as_the_source(before: List[str], after: List[str]) -> None:
    """Newer fairseq counts the source's end of sentence as one of its words."""
    off = {len(best(after)[n]) - len(words) for n, words in sources(after).items()}
    assert off in ({0}, {1})


def begins_as_the_target(before: List[str], after: List[str]) -> None:
    for number, words in best(after).items():
        assert words[:2] == sources(after, "T")[number][:2]


def without_text(before: List[str], after: List[str]) -> None:
    assert after == before[-1:]


def shorter_sources(before: List[str], after: List[str]) -> None:
    assert max(map(len, sources(after).values())) == 4
    assert max(map(len, sources(before).values())) == 8


def joined(before: List[str], after: List[str]) -> None:
    for number, words in best(before).items():
        assert "".join(best(after)[number]) == "".join(words)
        assert len(best(after)[number]) == 1


def one_bleu(name: str) -> Callable[..., None]:
    def check(before: List[str], after: List[str]) -> None:
        assert before[-1].startswith("Generate test with beam=4: BLEU4 = ")
        assert after[:-1] == before[:-1]
        assert name in after[-1] and "BLEU4" not in after[-1]

    return check


APART = ["--nbest", "4", "--min-len", "3", "--max-len-b", "3"]
Cases = Dict[str, Tuple[List[str], Callable[..., None]]]
SEARCH: Cases = {
    "--beam 2": (["--nbest", "4"], several(2)),
    "--nbest 3": ([], several(3)),
    "--lenpen 0.3": ([], power(0.3)),
    "--unnormalized": ([], power(0)),
    "--unkpen -100": (["--beam", "1", "--max-len-b", "3"], only_unknown),
    "--temperature 3": (["--beam", "1"], flatter),
    "--min-len 9": ([], lengths(9, 9)),
    "--max-len-b 3": ([], lengths(0, 3)),
    "--max-len-a 0.5 --max-len-b 1": ([], half_the_source),
    "--retain-dropout": ([], other),
}
LEFT_TO_FAIRSEQ: Cases = {
    "--diversity-rate 1000": (APART, first_words_differ),
    "--match-source-len": ([], as_long_as_the_source),
    "--prefix-size 2": ([], begins_as_the_target),
    "--sampling --sampling-topp 0.0001": (["--beam", "1"], the_same),
    "--sampling --sampling-topk 4": (["--beam", "1"], other),
}
OTHERS: Cases = {
    "--quiet": ([], without_text),
    "--retain-dropout --retain-dropout-modules EncoderLayer": ([], other),
    "--truncate-source --max-source-positions 5": ([], shorter_sources),
    "--left-pad-source": ([], the_same),  # a switch that turns it off
    "--required-batch-size-multiple 1": ([], the_same),
    "--post-process sentencepiece": ([], joined),
    "--scoring sacrebleu": ([], one_bleu("BLEU = ")),
    "--scoring chrf": ([], one_bleu("chrF")),
}


def slowly(*values: str) -> Any:
    """A case for ``make test-all``."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def generate(tiny_data_bin, trained) -> Callable[..., List[str]]:
    """fairseq-generate; what it printed for the same flags is remembered."""
    known: Dict[Tuple[str, ...], List[str]] = {}

    def run(*flags: str) -> List[str]:
        if flags not in known:
            known[flags] = stock.generate(tiny_data_bin, trained, *SHORT, *flags)
        return known[flags]

    return run


@pytest.mark.parametrize(
    "flags,task",
    [
        *[(flags, "ours") for flags in [*SEARCH, *LEFT_TO_FAIRSEQ]],
        *[slowly(flags, "translation") for flags in SEARCH],
        *[(flags, "translation") for flags in OTHERS if not flags.startswith("--scoring")],
        *[slowly(flags, "translation") for flags in OTHERS if flags.startswith("--scoring")],
    ],
)
def test_it_changes_what_it_should(flags: str, task: str, generate) -> None:
    base, check = {**SEARCH, **LEFT_TO_FAIRSEQ, **OTHERS}[flags]
    before = generate(*TASKS[task], *base)
    check(before, generate(*TASKS[task], *base, *flags.split()))


def test_dropout_that_is_retained_follows_the_seed(tiny_data_bin, trained) -> None:
    """``--retain-dropout`` decodes otherwise for each seed, and the same for the same."""
    flags = [*TASKS["ours"], "--retain-dropout", "--seed"]
    one, same, another = (
        stock.generate(tiny_data_bin, trained, *SHORT, *flags, seed) for seed in "112"
    )
    assert best(one) == best(same) != best(another)


def test_results_go_into_a_folder(tiny_data_bin, trained, tmp_path, generate) -> None:
    printed = stock.generate(
        tiny_data_bin, trained, *SHORT, "--results-path", str(tmp_path / "results")
    )
    written = (tmp_path / "results" / "generate-test.txt").read_text(encoding="utf-8")
    assert printed == []
    assert best(written.splitlines()) == best(generate())


@pytest.mark.parametrize(
    "flags,count", [("--batch-size 8", 3), ("--max-tokens 64", 3), ("--gen-subset valid", 2)]
)
def test_batches(flags: str, count: int, tiny_data_bin, trained, monkeypatch) -> None:
    sizes: List[int] = []
    original = TranslationTask.inference_step

    def counting(task: Any, generator: Any, models: Any, sample: Any, **others: Any) -> Any:
        sizes.append(len(sample["id"]))
        return original(task, generator, models, sample, **others)

    monkeypatch.setattr(TranslationTask, "inference_step", counting)
    lines = stock.generate(tiny_data_bin, trained, *SHORT, *flags.split())
    assert sum(sizes) == 20 and len(sizes) >= count
    assert lines[-1].startswith(f"Generate {'valid' if 'valid' in flags else 'test'} with")


@pytest.mark.slow
def test_pieces_of_words_are_joined(tiny_data_bin, trained, tmp_path) -> None:
    """``--remove-bpe``, which ``--post-process`` is the other name of."""
    shutil.copytree(tiny_data_bin, tmp_path / "subwords")
    for language in ("en", "de"):
        path = tmp_path / "subwords" / f"dict.{language}.txt"
        entries = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(e.replace(" ", "@@ ", 1) + "\n" for e in entries), "utf-8")
    for flags in (["--remove-bpe"], ["--post-process", "subword_nmt"]):
        lines = stock.generate(tmp_path / "subwords", trained, *SHORT, *flags)
        assert all(len(words) == 1 for words in best(lines).values())
        assert "@@ " in " ".join(stock.generate(tmp_path / "subwords", trained, *SHORT))


@pytest.fixture(scope="module")
def language_model(tiny_text, tiny_data_bin, tmp_path_factory) -> Path:
    """A folder with a data-bin that also has what a language model asks for, and the model."""
    from fairseq_cli import preprocess, train  # the latter sets up logging

    folder = tmp_path_factory.mktemp("lm")
    parser = options.get_preprocessing_parser()
    arguments = ["--only-source", "--srcdict", str(tiny_data_bin / "dict.de.txt")]
    arguments += ["--trainpref", str(tiny_text / "train.de"), "--destdir", str(folder / "text")]
    preprocess.main(parser.parse_args([*arguments, "--validpref", str(tiny_text / "valid.de")]))
    shutil.copytree(tiny_data_bin, folder / "data")
    shutil.copy(folder / "text" / "dict.txt", folder / "data")
    parser = options.get_training_parser()
    arguments = [str(folder / "text"), *stock.ON_CPU, "--task", "language_modeling"]
    arguments += ["--arch", "transformer_lm", "--decoder-embed-dim", "16", "--decoder-layers", "1"]
    arguments += ["--decoder-attention-heads", "2", "--lr", "0.01", "--tokens-per-sample", "20"]
    arguments += ["--optimizer", "adam", "--max-tokens", "400", "--max-update", "9"]
    arguments += ["--save-dir", str(folder), "--disable-validation", "--no-epoch-checkpoints"]
    with stock.fresh_process():
        args = options.parse_args_and_arch(parser, input_args=arguments)
        train.main(convert_namespace_to_omegaconf(args))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_language_model_is_listened_to(task: str, language_model: Path, trained) -> None:
    """``--lm-path`` and ``--lm-weight``: a token's score is log P + weight · log P of the LM."""
    data, path = language_model / "data", str(language_model / "checkpoint_last.pt")
    flags = [*SHORT, *TASKS[task], "--beam", "1", "--min-len", "9"]
    plain = stock.generate(data, trained, *flags)
    found = {
        weight: stock.generate(data, trained, *flags, "--lm-path", path, "--lm-weight", weight)
        for weight in ("0", "1e-3", "10")
    }
    assert best(found["0"]) == best(plain) != best(found["10"])
    for (_, before), (_, after) in zip(scored(plain), scored(found["1e-3"]), strict=True):
        assert all(-0.01 < b - a < 0 for a, b in zip(before, after, strict=True))


@pytest.mark.slow
def test_our_model_and_theirs_are_an_ensemble(tiny_data_bin, trained, tmp_path) -> None:
    """p = (p_1 + p_2) / 2 for each token of the reference, whichever is named first."""
    recipe = ["--optimizer", "adam", "--lr-scheduler", "fixed", "--lr", "0.005"]
    stock.train(
        tiny_data_bin,
        tmp_path,
        *("--max-update", "20", "--no-epoch-checkpoints", "--disable-validation"),
        model=["--arch", "transformer_tiny", "--share-all-embeddings"],
        recipe=[*recipe, "--criterion", "label_smoothed_cross_entropy"],
    )
    theirs = tmp_path / "checkpoint_last.pt"
    scores = {}
    for path in (f"{trained}", f"{theirs}", f"{trained}:{theirs}", f"{theirs}:{trained}"):
        lines = stock.generate(tiny_data_bin, path, "--score-reference")
        scores[path] = torch.tensor([t for _, tokens in scored(lines) for t in tokens])
    one, two, *both = scores.values()
    for together in both:
        assert (together - ((2**one + 2**two) / 2).log2()).abs().max() < 2e-4  # printed to 4 places
    for task in TASKS.values():
        lines = stock.generate(tiny_data_bin, f"{trained}:{theirs}", *SHORT, *task)
        assert len(best(lines)) == 20


# --- what cannot work ---------------------------------------------------------------------------

REFUSED = {
    "--beam 0": "--beam must be above 0, not 0",
    "--beam -3": "--beam must be above 0, not -3",
    "--nbest 0": "--nbest must be above 0, not 0",
    "--no-repeat-ngram-size 2": "--no-repeat-ngram-size changes nothing",
    "--diverse-beam-groups 4": "--diverse-beam-groups compares the groups of other sentences",
    "--replace-unk": "--replace-unk fails in every version",
    "--lenpen nan": "--lenpen must be a finite number, not nan",
    "--lenpen inf": "--lenpen must be a finite number, not inf",
    "--temperature 0": "--temperature must be above 0, not 0",
    "--max-len-b 0": "--max-len-b 0 allows fewer words than --min-len 1 asks for",
    "--min-len 11 --max-len-b 10": "--max-len-b 10 allows fewer words than --min-len 11",
}
REFUSED_BY_THE_COMMAND = {
    "--lenpen nan": "--lenpen must be a finite number, not nan",
    "--retain-dropout --retain-dropout-modules Nothing": "no module named Nothing has dropout",
    "--left-pad-target": "--left-pad-target is not supported",
}


@pytest.fixture(scope="module")
def build(tiny_data_bin, trained) -> Callable[[str], Any]:
    """Makes ready to decode as fairseq-generate does, and decodes nothing."""
    known: Dict[str, Any] = {}

    def run(flags: str) -> Any:
        arguments = [str(tiny_data_bin), *stock.ON_CPU, "--path", str(trained), "--beam", "4"]
        parser = options.get_generation_parser()
        arguments += [*TASKS["ours"], *SHORT, *flags.split()]
        args = options.parse_args_and_arch(parser, arguments)
        cfg = stock.configuration(args)
        if not known:
            known["task"] = tasks.setup_task(cfg.task)
            known["models"], _ = load_model_ensemble([str(trained)], task=known["task"])
        return known["task"].build_generator(known["models"], cfg.generation)

    return run


@pytest.mark.parametrize("flags", REFUSED)
def test_what_cannot_work_is_one_sentence(flags: str, build) -> None:
    with pytest.raises(ConfigError) as refused:
        build(flags)
    assert str(refused.value).startswith(REFUSED[flags])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("flags", REFUSED_BY_THE_COMMAND)
def test_what_the_command_cannot_do_is_one_sentence(flags: str, tiny_data_bin, trained) -> None:
    with pytest.raises(ConfigError) as refused:
        stock.generate(tiny_data_bin, trained, *SHORT, *TASKS["ours"], *flags.split())
    assert REFUSED_BY_THE_COMMAND[flags] in str(refused.value)
    assert "\n" not in str(refused.value)


NOTHING = {
    "--beam 400": "--beam 400 is reduced to 15: the dictionary has no more words",
}


@pytest.mark.parametrize("flags", NOTHING)
def test_what_changes_nothing_is_said(flags: str, build) -> None:
    with stock.logged() as logged:
        build(flags)
    assert [line for line in logged if line.startswith(NOTHING[flags])]


def test_usual_options_are_not_warned_of(build) -> None:
    with stock.logged() as logged:
        build("--lenpen 0.6 --quiet --nbest 4 --retain-dropout --sampling --sampling-topk 3")
    assert logged == []


@pytest.mark.parametrize("task", TASKS)
def test_a_model_with_nan_is_not_decoded(task: str, tiny_data_bin, trained, tmp_path) -> None:
    """One sentence that names the parameter, whichever search would have run."""
    state = torch.load(trained, weights_only=False)
    state["model"]["decoder.layers.1.feed_forward.fc1.bias"][3] = float("nan")
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(CheckpointError, match=r"decoder\.layers\.1\.feed_forward\.fc1\.bias"):
        stock.generate(tiny_data_bin, tmp_path / "nan.pt", *SHORT, *TASKS[task])
