"""fairseq-generate's options with our model; for our search, fairseq's own is the reference."""

from typing import Any

import pytest
import torch

from benchmarks import decode
from tests import stock
from transformer_plugin.config import ConfigError
from transformer_plugin.generator import VaswaniSequenceGenerator

OURS = ["--task", "vaswani_translation"]
GNMT = [*OURS, "--length-penalty", "gnmt", "--lenpen", "0.6"]


def scores(lines: list[str]) -> list[float]:
    """Return the scores of all hypotheses, by the number of the sentence.

    The words are compared in tests/parity, in float64: of two hypotheses with nearly equal scores,
    the order of a sum decides which comes first.
    """
    found = stock.results(lines, "H")
    return [float(score) for number in sorted(found) for score in found[number][::2]]


def about(lines: list[str]) -> Any:
    """Expect the scores to 3 places: 4 are printed, and float32 sums differ in the last two."""
    return pytest.approx(scores(lines), abs=1e-3)


def token_scores(lines: list[str]) -> torch.Tensor:
    """Return the log-probabilities, to base 2, of all tokens of all sentences."""
    columns = stock.results(lines, "P")
    return torch.tensor([float(t) for n in sorted(columns) for t in columns[n][0].split()])


@pytest.fixture(scope="module")
def plain(tiny_data_bin, trained) -> list[str]:
    """Return the output of fairseq-generate without any option."""
    return stock.generate(tiny_data_bin, trained)


@pytest.fixture
def searches(monkeypatch) -> list[str]:
    """Return a list that grows with every batch that our own search decodes."""
    original = VaswaniSequenceGenerator.search_batch
    batches: list[str] = []

    def counting(self, net_input):
        batches.append(self.length_penalty)
        return original(self, net_input)

    monkeypatch.setattr(VaswaniSequenceGenerator, "search_batch", counting)
    return batches


@pytest.mark.parametrize(
    "options",
    [
        *("", "--lenpen 0.6 --nbest 4", "--beam 1 --temperature 3", "--unnormalized"),
        *("--min-len 9 --max-len-b 9", "--max-len-a 0.5 --max-len-b 1 --unkpen -100"),
    ],
)
def test_our_search_finds_scores_as_good_as_fairseqs(tiny_data_bin, trained, options, searches):
    theirs = stock.generate(tiny_data_bin, trained, *options.split())
    assert searches == []
    ours = stock.generate(tiny_data_bin, trained, *OURS, *options.split())
    assert set(searches) == {"fairseq"}
    assert len(scores(ours)) >= 20 and scores(ours) == about(theirs)


def test_the_papers_length_penalty_divides_scores(tiny_data_bin, trained, searches):
    """The sum of its tokens' scores divided by ((5 + length) / 6)^0.6 (section 6.1)."""
    lines = stock.generate(tiny_data_bin, trained, *GNMT, "--max-len-a", "1", "--max-len-b", "50")
    assert set(searches) == {"gnmt"}
    for number, (column,) in stock.results(lines, "P").items():
        tokens = [float(score) for score in column.split()]
        expected = sum(tokens) / ((5 + len(tokens)) / 6) ** 0.6
        score = float(stock.results(lines, "H")[number][0])
        assert score == pytest.approx(expected, abs=1e-3)  # printed to 4 places


def test_validation_decodes_with_our_search(tiny_data_bin, tmp_path, searches):
    options = '{"beam": 2, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 5}'
    bleu = ["--eval-bleu", "--eval-bleu-args", options]
    lines = stock.train(tiny_data_bin, tmp_path, *GNMT[:4], *bleu, "--max-update", "4")
    assert set(searches) == {"gnmt"}
    assert any(" | bleu " in line for line in lines)


def test_retained_dropout_of_no_module_is_refused(tiny_data_bin, trained):
    flags = ["--retain-dropout", "--retain-dropout-modules", "Nothing"]
    with pytest.raises(ConfigError, match="Nothing"):
        stock.generate(tiny_data_bin, trained, *OURS, *flags)


def test_interactive_translates_as_generate_does(tiny_data_bin, trained, plain):
    """One sentence at a time, from standard input, without padding or neighbours."""
    sources = stock.results(plain, "S")
    text = "".join(sources[number][0] + "\n" for number in range(20))
    for task in ([], OURS):
        lines = stock.interactive(tiny_data_bin, trained, text, *task)
        assert scores(lines) == about(plain)


def test_an_empty_line_keeps_its_place(tiny_data_bin, trained):
    lines = stock.interactive(tiny_data_bin, trained, "1 2 3\n\n4 5\n", "--buffer-size", "3", *OURS)
    assert sorted(stock.results(lines, "H")) == [0, 1, 2]
    alone = stock.interactive(tiny_data_bin, trained, "4 5\n")
    assert scores(lines)[2:] == about(alone)


def test_an_ensemble_averages_probabilities(tiny_data_bin, trained, another):
    """Of two models, p = (p_1 + p_2) / 2 for each token of the reference."""
    paths = [str(trained), str(another), f"{trained}:{another}"]
    one, two, both = (
        token_scores(stock.generate(tiny_data_bin, path, "--score-reference")) for path in paths
    )
    assert (both - ((2**one + 2**two) / 2).log2()).abs().max() < 2e-4  # printed to 4 places
    assert len(scores(stock.generate(tiny_data_bin, paths[2], *OURS))) == 20


@pytest.mark.slow
def test_our_search_with_fairseqs_weights_finds_what_fairseqs_finds(tiny_data_bin, tmp_path):
    """Compare what `make bench` decodes; its checkpoint is made from a data-bin alone."""
    one_process = decode.Configuration(threads=1, workers=1)
    checkpoint = decode.train_checkpoint(tmp_path, str(tiny_data_bin), "cpu", 1, "trial", 2)
    systems = {name: decode.SYSTEMS[name] for name in ("fairseq", "ours")}
    teams = decode.start_teams(systems, "cpu", str(tiny_data_bin), checkpoint, 4, [one_process])
    hypotheses = {}
    for name, team in teams.items():
        team.wait()
        hypotheses[name] = team.translate(one_process, 2, 4)["hypotheses"]
        team.end()
    assert len(hypotheses["ours"]) == 4
    assert hypotheses["ours"] == hypotheses["fairseq"]
