"""fairseq-train's options do with our model what they do with fairseq's own."""

import re
from pathlib import Path
from typing import Dict, List

import pytest
import torch

from tests import stock
from tests.conftest import preprocess
from transformer_plugin.config import ConfigError

# All 200 pairs in each update, and no dropout: then neither the order of sentences nor their
# distribution over batches can change what is learned. Adam's epsilon is large, since a bias added
# to all keys has no gradient but rounding errors, which Adam would blow up to whole steps.
WHOLE = ["--adam-eps", "1e-4"]
WHOLE += ["--max-tokens", "100000", "--dropout", "0", "--max-update", "3", "--disable-validation"]
ONE_BATCH = ["--batch-size", "200"]


def last(folder: Path) -> Path:
    return folder / "checkpoint_last.pt"


def validations(lines: List[str]) -> List[Dict[str, float]]:
    """The values of each validation that a training logged."""
    found = [line.split(" | ")[2:] for line in lines if " | valid on 'valid' subset | " in line]
    return [{name: float(v) for name, v in (p.split() for p in parts)} for parts in found]


def logged_losses(lines: List[str]) -> List[float]:
    """The training loss of each epoch."""
    found = [re.match(r"epoch \d+ \| loss ([\d.]+) ", line) for line in lines]
    return [float(match.group(1)) for match in found if match]


@pytest.fixture(scope="module")
def reference(tiny_data_bin, tmp_path_factory) -> Path:
    """Three updates, each on the whole training set in one batch."""
    folder = tmp_path_factory.mktemp("reference")
    lines = stock.train(tiny_data_bin, folder, *WHOLE, *ONE_BATCH)
    (folder / "log").write_text("\n".join(lines), encoding="utf-8")
    return last(folder)


@pytest.mark.parametrize(
    "options",
    [
        ["--batch-size", "40", "--update-freq", "5"],
        [*ONE_BATCH, "--left-pad-source"],  # fairseq turns its True default into this switch
        [*ONE_BATCH, "--required-seq-len-multiple", "8"],
        [*ONE_BATCH, "--attention-impl", "readable"],
        [*ONE_BATCH, "--share-all-embeddings"],
    ],
    ids=lambda options: options[-1] if options[-1].startswith("--") else " ".join(options[-2:]),
)
def test_what_must_not_change_the_result(options, tiny_data_bin, reference, tmp_path):
    """Accumulated batches, the padding's side and amount, and how attention is computed."""
    lines = stock.train(tiny_data_bin, tmp_path, *WHOLE, *options)
    assert any("num_updates 3" in line for line in lines)
    difference, name = stock.largest_difference(last(tmp_path), reference)
    assert difference < 2e-5, name  # what is learned in three steps is 100 times as large


def test_bf16_stays_near(tiny_data_bin, reference, tmp_path):
    """``--precision bf16`` has 8 bits a number: the loss agrees to 1%, parameters stay fp32.

    A CPU without bf16 says so and computes in fp32.
    """
    lines = stock.train(tiny_data_bin, tmp_path, *WHOLE, *ONE_BATCH, "--precision", "bf16")
    parameters = stock.parameters(last(tmp_path)).values()
    assert {p.dtype for p in parameters if p.is_floating_point()} == {torch.float32}
    expected = logged_losses(reference.with_name("log").read_text(encoding="utf-8").splitlines())
    assert len(expected) == 3
    assert logged_losses(lines) == pytest.approx(expected, rel=0.01)


def test_two_dictionaries_with_three_matrices(tiny_text, tmp_path):
    """``--untie-embeddings`` on data without ``--joined-dictionary``."""
    data = preprocess(tiny_text, tmp_path / "data", "--nwordstgt", "8")
    options = ["--untie-embeddings", "--max-update", "3"]
    stock.train(data, tmp_path, *options)
    shapes = {name: tuple(p.shape) for name, p in stock.parameters(last(tmp_path)).items()}
    assert shapes["encoder.embedding.tokens.weight"] == (16, 32)
    assert shapes["decoder.embedding.tokens.weight"] == (8, 32)
    assert shapes["decoder.output_projection.weight"] == (8, 32)
    lines = stock.generate(data, last(tmp_path), "--max-len-b", "5")
    assert len(stock.results(lines, "H")) == 20


def test_learned_positions_limit_what_is_decoded(tiny_data_bin, tmp_path):
    """Table 3 row E: 12 positions are learned, and no hypothesis asks for a thirteenth."""
    limits = ["--max-source-positions", "12", "--max-target-positions", "12"]
    learned = ["--encoder-learned-pos", "--decoder-learned-pos"]
    stock.train(tiny_data_bin, tmp_path, *limits, *learned, "--max-update", "3")
    shapes = {name: tuple(p.shape) for name, p in stock.parameters(last(tmp_path)).items()}
    assert shapes["encoder.embedding.positions.weight"] == (12, 32)
    assert shapes["decoder.embedding.positions.weight"] == (12, 32)
    lines = stock.generate(tiny_data_bin, last(tmp_path), "--max-len-b", "200", "--min-len", "11")
    for columns in stock.results(lines, "H").values():
        assert len(columns[1].split()) == 11  # the twelfth ends the sentence


def test_finetuning_starts_from_the_other_models_parameters(tiny_data_bin, trained, tmp_path):
    """Only parameters are taken over: updates are counted from 0."""
    options = ["--finetune-from-model", str(trained), "--lr-factor", "1e-9", "--max-update", "1"]
    lines = stock.train(tiny_data_bin, tmp_path, *options)
    assert any("num_updates 1" in line for line in lines)
    difference, name = stock.largest_difference(last(tmp_path), trained)
    assert difference < 1e-7, name


def test_tensorboard_gets_the_values(tiny_data_bin, tmp_path):
    pytest.importorskip("tensorboardX")
    options = ["--tensorboard-logdir", str(tmp_path / "tb"), "--max-update", "8"]
    stock.train(tiny_data_bin, tmp_path, *options, "--log-interval", "2")
    for part in ("train", "train_inner", "valid"):
        (events,) = (tmp_path / "tb" / part).glob("events.out.tfevents.*")
        content = events.read_bytes()  # tags stand in it as plain text
        assert b"nll_loss" in content and b"ppl" in content
    assert b"accuracy" in content  # of validation


def test_bleu_chooses_the_best_checkpoint_and_ends_the_run(tiny_data_bin, tmp_path):
    """``--eval-bleu`` and ``--patience``: with a rate of almost 0 the score never rises."""
    bleu = [
        "--eval-bleu",
        "--eval-bleu-args",
        '{"beam": 2, "max_len_b": 4}',
        "--keep-best-checkpoints=1",
    ]
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    options = [*bleu, "--lr-factor", "1e-9", "--update-epoch-batch-itr", "True"]
    lines = stock.train(tiny_data_bin, tmp_path, *options, "--patience", "2", "--max-epoch", "9")
    found = validations(lines)
    assert len(found) == 3  # one, then two that were no better
    assert all(0 <= values["bleu"] <= 100 for values in found)
    assert any("early stop since valid performance hasn't improved" in line for line in lines)
    assert (tmp_path / "checkpoint_best.pt").is_file()
    # the meters of --eval-bleu are in the checkpoints: they are read again by both commands
    resumed = stock.train(tiny_data_bin, tmp_path, *options, "--max-epoch", "4")
    assert [values["num_updates"] for values in validations(resumed)] == [
        found[-1]["num_updates"] / 3 * 4
    ]
    best = stock.generate(tiny_data_bin, tmp_path / "checkpoint_best.pt", "--max-len-b", "4")
    assert len(stock.results(best, "H")) == 20


SHOWN = ["--task", "vaswani_translation", "--eval-bleu-lines", "10"]
SHOWN += ["--eval-bleu-tokens", "13a", "--eval-bleu-detok", "moses"]


def test_showing_translations_leaves_the_training_as_it_is(tiny_data_bin, tmp_path):
    """With dropout, bit by bit; the score is that of the first lines, decoded greedily."""
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesDetokenizer

    options = ["--max-update", "8", "--save-interval-updates", "2", "--dropout", "0.3"]
    plain = stock.train(tiny_data_bin, tmp_path / "plain", *options)
    lines = stock.train(tiny_data_bin, tmp_path / "shown", *options, *SHOWN)
    assert stock.largest_difference(last(tmp_path / "shown"), last(tmp_path / "plain"))[0] == 0
    assert logged_losses(lines) == logged_losses(plain) and "bleu" not in validations(plain)[-1]
    search = ["--gen-subset", "valid", "--beam", "1", "--max-len-a", "1", "--max-len-b", "50"]
    found = stock.generate(tiny_data_bin, last(tmp_path / "shown"), *search)
    text = MosesDetokenizer("de").detokenize
    said, meant = (
        [text(stock.results(found, kind)[n][-1].split()) for n in range(10)] for kind in "HT"
    )
    expected = BLEU().corpus_score(said, [meant]).score
    assert validations(lines)[-1]["bleu"] == pytest.approx(expected, abs=0.01)
    shown = [line for line in lines if " → " in line]
    assert len(shown) == 3 * len(validations(lines))
    assert said[0] in shown[-3] and meant[0] in shown[-3] and said[2] in shown[-1]


def test_what_cannot_be_shown_is_refused_before_training(tiny_data_bin, tmp_path):
    message = "--eval-bleu and --eval-bleu-lines exclude each other"
    with pytest.raises(ConfigError, match=message):
        stock.train(tiny_data_bin, tmp_path, *SHOWN, "--eval-bleu", "--max-update", "1")
    assert not [*tmp_path.iterdir()]
