"""What our own options of fairseq-train change, and what must not change the result."""

import shutil
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.files import write
from transformer_plugin.config import ConfigError

# All 200 pairs in each update, and no dropout: then neither the order of sentences nor their
# distribution over batches can change what is learned. Adam's epsilon is large, since a bias added
# to all keys has no gradient but rounding errors, which Adam would blow up to whole steps.
WHOLE = ["--adam-eps", "1e-4"]
WHOLE += ["--max-tokens", "100000", "--dropout", "0", "--max-update", "3", "--disable-validation"]
ONE_BATCH = ["--batch-size", "200"]


def last(folder: Path) -> Path:
    return folder / "checkpoint_last.pt"


def validations(lines: list[str]) -> list[dict[str, float]]:
    """Return the values of each validation that a training logged."""
    found = [line.split(" | ")[2:] for line in lines if " | valid on 'valid' subset | " in line]
    return [{name: float(v) for name, v in (p.split() for p in parts)} for parts in found]


@pytest.fixture(scope="module")
def reference(tiny_data_bin, tmp_path_factory) -> Path:
    """Train for three updates, each on the whole training set in one batch."""
    folder = tmp_path_factory.mktemp("reference")
    stock.train(tiny_data_bin, folder, *WHOLE, *ONE_BATCH)
    return last(folder)


@pytest.mark.parametrize(
    "options",
    [
        "--batch-size 40 --update-freq 5",
        "--batch-size 200 --left-pad-source",  # fairseq turns its True default into this switch
        "--batch-size 200 --attention-impl readable",
        "--batch-size 200 --optimizer vaswani_adam",
    ],
)
def test_learning_does_not_depend_on(options, tiny_data_bin, reference, tmp_path):
    """Accumulation, the padding's side and amount, and the kernels of attention and Adam."""
    lines = stock.train(tiny_data_bin, tmp_path, *WHOLE, *options.split())
    assert any("num_updates 3" in line for line in lines)
    difference, name = stock.largest_difference(last(tmp_path), reference)
    assert difference < 2e-5, name  # what is learned in three steps is 100 times as large


def test_bf16_keeps_its_parameters_in_fp32(tiny_data_bin, reference, tmp_path):
    """8 bits a number: learned is the same to some of them. A CPU without bf16 computes in fp32."""
    stock.train(tiny_data_bin, tmp_path, *WHOLE, *ONE_BATCH, "--precision", "bf16")
    parameters = stock.parameters(last(tmp_path)).values()
    assert {p.dtype for p in parameters if p.is_floating_point()} == {torch.float32}
    assert stock.largest_difference(last(tmp_path), reference)[0] < 1e-3


def test_no_hypothesis_is_longer_than_the_learned_positions(tiny_data_bin, tmp_path):
    limits = ["--max-source-positions", "12", "--max-target-positions", "12"]
    learned = ["--encoder-learned-pos", "--decoder-learned-pos"]
    stock.train(tiny_data_bin, tmp_path, *limits, *learned, "--max-update", "3")
    shapes = {name: tuple(p.shape) for name, p in stock.parameters(last(tmp_path)).items()}
    assert shapes["decoder.embedding.positions.weight"] == (12, 32)
    lines = stock.generate(tiny_data_bin, last(tmp_path), "--max-len-b", "200", "--min-len", "11")
    for columns in stock.results(lines, "H").values():
        assert len(columns[1].split()) == 11  # the twelfth ends the sentence


SHOWN = ["--task", "vaswani_translation", "--eval-bleu-lines", "10"]
SHOWN += ["--eval-bleu-tokens", "13a", "--eval-bleu-detok", "moses"]


def test_showing_translations_leaves_the_training_as_it_is(tiny_data_bin, tmp_path):
    """With dropout, bit by bit; the score is that of the first lines, decoded greedily."""
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesDetokenizer

    options = ["--max-update", "8", "--save-interval-updates", "2", "--dropout", "0.3"]
    options += ["--task", "vaswani_translation"]
    stock.train(tiny_data_bin, tmp_path / "plain", *options)
    lines = stock.train(tiny_data_bin, tmp_path / "shown", *options, *SHOWN)
    assert stock.largest_difference(last(tmp_path / "shown"), last(tmp_path / "plain"))[0] == 0
    search = ["--gen-subset", "valid", "--beam", "1", "--max-len-a", "1", "--max-len-b", "50"]
    found = stock.generate(tiny_data_bin, last(tmp_path / "shown"), *search)
    text = MosesDetokenizer("de").detokenize
    said, meant = (
        [text(stock.results(found, kind)[n][-1].split()) for n in range(10)] for kind in "HT"
    )
    expected = BLEU().corpus_score(said, [meant]).score
    assert validations(lines)[-1]["bleu"] == pytest.approx(expected, abs=0.01)
    shown = [line for line in lines if " → " in line]
    assert said[0] in shown[-3] and meant[0] in shown[-3] and said[2] in shown[-1]


def test_references_are_the_text_as_written(tiny_text, tiny_data_bin, tmp_path):
    """It is found by its characters, also where lines were left out of the data."""
    data = tmp_path / "data" / "data-bin"
    shutil.copytree(tiny_data_bin, data)
    tokens = (tiny_text / "valid.de").read_text(encoding="utf-8").splitlines()
    written = [line.replace(" ", "") for line in tokens]
    write(data.parent / "text" / "valid.de", "Eine Zeile, die im data-bin fehlt.", *written)
    lines = stock.train(data, tmp_path / "run", *SHOWN, "--max-update", "1")
    references = [line.rpartition("(reference: ")[2].rstrip(")") for line in lines if " → " in line]
    assert references[:3] == written[:3]


def test_two_kinds_of_bleu_are_refused_before_training(tiny_data_bin, tmp_path):
    with pytest.raises(ConfigError, match="--eval-bleu-lines"):
        stock.train(tiny_data_bin, tmp_path, *SHOWN, "--eval-bleu", "--max-update", "1")
    assert not [*tmp_path.iterdir()]
