"""fairseq-generate's options do with our model what they do with fairseq's own."""

import math
from pathlib import Path
from typing import Dict, List

import pytest
import torch

from tests import stock
from tests.conftest import SYMBOLS
from transformer_plugin.generator import VaswaniSequenceGenerator

PREFIX = ["--prefix-size", "1"]
OURS = ["--task", "vaswani_translation"]
GNMT = [*OURS, "--length-penalty", "gnmt", "--lenpen", "0.6"]


def hypotheses(lines: List[str]) -> Dict[int, List[str]]:
    """Sentence number → the words of its best hypothesis."""
    return {number: columns[1].split() for number, columns in stock.results(lines, "H").items()}


@pytest.fixture(scope="module")
def plain(tiny_data_bin, trained) -> List[str]:
    """What fairseq-generate prints without any option."""
    return stock.generate(tiny_data_bin, trained)


def test_every_sentence_has_its_lines(plain):
    for letter in "STHDP":
        assert sorted(stock.results(plain, letter)) == list(range(20))
    assert plain[-1].startswith("Generate test with beam=4: BLEU4 = ")


def test_scores_add_up(plain):
    """A hypothesis' score is the mean of its tokens' log-probabilities, its end included."""
    words = hypotheses(plain)
    for number, (column,) in stock.results(plain, "P").items():
        tokens = [float(score) for score in column.split()]
        assert len(tokens) == len(words[number]) + 1
        score = float(stock.results(plain, "H")[number][0])
        assert score == pytest.approx(sum(tokens) / len(tokens), abs=2e-4)  # printed to 4 places


def test_the_model_is_rebuilt_from_the_checkpoint_alone(tiny_data_bin, trained):
    """No flag of the model is needed, and loss and schedule are named in the file."""
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    (model,), cfg, _ = load_model_ensemble_and_task([str(trained)])
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 2)
    assert model.decoder.output_projection.weight.shape == (16, 32)  # 10 digits, 4 special, 2 fill
    assert model.encoder.layers[0].self_attention.num_heads == 4
    assert cfg.criterion._name == "vaswani_label_smoothed_cross_entropy"
    assert cfg.lr_scheduler._name == "vaswani_inverse_sqrt"
    assert cfg.lr_scheduler.warmup_updates == 50


def test_interactive_says_the_same(tiny_data_bin, trained, plain):
    """One sentence at a time, from standard input, without padding or neighbours."""
    sources = stock.results(plain, "S")
    text = "".join(sources[number][0] + "\n" for number in range(20))
    lines = stock.interactive(tiny_data_bin, trained, text)
    assert hypotheses(lines) == hypotheses(plain)
    for number, columns in stock.results(lines, "H").items():
        expected = float(stock.results(plain, "H")[number][0])
        assert float(columns[0]) == pytest.approx(expected, abs=1e-4)


def test_hard_alignment_points_at_words_of_the_source(tiny_data_bin, trained, caplog):
    with caplog.at_level("INFO", logger="transformer_plugin.task"):
        lines = stock.generate(
            tiny_data_bin, trained, "--print-alignment", "--task", "vaswani_translation"
        )
    assert "--print-alignment: decoding with fairseq's own search" in caplog.messages
    words, sources = hypotheses(lines), stock.results(lines, "S")
    for number, (column,) in stock.results(lines, "A").items():
        pairs = [tuple(map(int, pair.split("-"))) for pair in column.split()]
        assert [target for _, target in pairs] == list(range(len(words[number])))
        assert all(0 <= source < len(sources[number][0].split()) for source, _ in pairs)


def test_soft_alignment_is_a_distribution_over_the_source(tiny_data_bin, trained):
    """Each target token's weights, the source's end included, sum to 1 (printed to 6 places)."""
    lines = stock.generate(tiny_data_bin, trained, "--print-alignment", "soft")
    words, sources = hypotheses(lines), stock.results(lines, "S")
    for number, (column,) in stock.results(lines, "A").items():
        rows = [[float(weight) for weight in row.split(",")] for row in column.split()]
        assert len(rows) == len(words[number]) + 1
        for row in rows:
            assert len(row) == len(sources[number][0].split()) + 1
            assert min(row) >= 0 and sum(row) == pytest.approx(1, abs=1e-5)


def test_hard_alignment_is_the_largest_soft_one(tiny_data_bin, trained):
    hard = stock.results(stock.generate(tiny_data_bin, trained, "--print-alignment"), "A")
    soft = stock.results(stock.generate(tiny_data_bin, trained, "--print-alignment", "soft"), "A")
    for number, (column,) in hard.items():
        rows = [[float(w) for w in row.split(",")][:-1] for row in soft[number][0].split()]
        for pair in column.split():
            source, target = map(int, pair.split("-"))
            assert rows[target][source] == max(rows[target])


def test_a_prefix_is_kept(tiny_data_bin, trained):
    lines = stock.generate(tiny_data_bin, trained, *PREFIX)
    for number, words in hypotheses(lines).items():
        assert words[0] == stock.results(lines, "T")[number][0].split()[0]


def test_an_ensemble_averages_probabilities(tiny_data_bin, trained, another):
    """Of two models, p = (p_1 + p_2) / 2 for each token of the reference."""
    paths = [str(trained), str(another), f"{trained}:{another}"]
    scores = []
    for path in paths:
        lines = stock.generate(tiny_data_bin, path, "--score-reference")
        columns = stock.results(lines, "P")
        tokens = [float(t) for number in range(20) for t in columns[number][0].split()]
        scores.append(torch.tensor(tokens, dtype=torch.float64))
    mean = ((2 ** scores[0] + 2 ** scores[1]) / 2).log2()
    assert (scores[2] - mean).abs().max() < 2e-4  # printed to 4 places
    assert sorted(hypotheses(stock.generate(tiny_data_bin, paths[2]))) == list(range(20))


def test_scored_references_have_the_loss_of_validation(tiny_data_bin, trained):
    """fairseq-validate's nll_loss is the mean of what ``--score-reference`` gives each token."""
    lines = stock.generate(tiny_data_bin, trained, "--score-reference")
    assert {n: c[1] for n, c in stock.results(lines, "H").items()} == {
        n: c[0] for n, c in stock.results(lines, "T").items()
    }
    columns = stock.results(lines, "P").values()
    tokens = [float(t) for (column,) in columns for t in column.split()]
    logged = stock.validate(tiny_data_bin, trained)[-1]
    values = dict(part.split() for part in logged.split(" | ")[1:])
    nll = -sum(tokens) / len(tokens)
    assert float(values["nll_loss"]) == pytest.approx(nll, abs=1e-3)  # printed to 3 places
    assert float(values["ppl"]) == pytest.approx(2**nll, abs=1e-2)
    assert 0 < float(values["accuracy"]) <= 100


def test_nbest_is_sorted(tiny_data_bin, trained):
    lines = stock.generate(tiny_data_bin, trained, "--nbest", "4")
    for columns in stock.results(lines, "H").values():
        scores, texts = [float(c) for c in columns[::2]], columns[1::2]
        assert len(set(texts)) == 4
        assert scores == sorted(scores, reverse=True)


def test_sampling_follows_the_seed(tiny_data_bin, trained):
    options = ["--sampling", "--nbest", "4"]
    one, same, other = (
        stock.generate(tiny_data_bin, trained, *options, "--seed", seed) for seed in "112"
    )
    assert hypotheses(one) == hypotheses(same) != hypotheses(other)
    assert all(math.isfinite(float(c[0])) for c in stock.results(one, "H").values())


def test_sampling_only_the_best_token_is_greedy_search(tiny_data_bin, trained):
    one = ["--beam", "1"]
    sampled = stock.generate(tiny_data_bin, trained, *one, "--sampling", "--sampling-topk", "1")
    assert hypotheses(sampled) == hypotheses(stock.generate(tiny_data_bin, trained, *one))


def test_constraints_are_met(tiny_data_bin, trained):
    text = "".join(f"1 2 3 4\t{symbol}\n" for symbol in SYMBOLS)
    lines = stock.interactive(tiny_data_bin, trained, text, "--constraints", "--max-len-b", "10")
    for number, words in hypotheses(lines).items():
        assert SYMBOLS[number] in words


def test_an_empty_line_is_translated_too(tiny_data_bin, trained):
    """Not dropped: line n of the output still belongs to line n of the input."""
    lines = stock.interactive(tiny_data_bin, trained, "1 2 3\n\n4 5\n", "--buffer-size", "3")
    assert sorted(stock.results(lines, "H")) == [0, 1, 2]
    alone = stock.interactive(tiny_data_bin, trained, "4 5\n")
    assert hypotheses(lines)[2] == hypotheses(alone)[0]


def test_a_checkpoint_is_decoded_by_another_implementation(tiny_data_bin, trained: Path, plain):
    """``--model-overrides`` reaches the model: the readable attention gives the same words."""
    override = ["--model-overrides", "{'attention_impl': 'readable'}"]
    assert hypotheses(stock.generate(tiny_data_bin, trained, *override)) == hypotheses(plain)


@pytest.fixture
def searches(monkeypatch) -> List[str]:
    """Grows by one with every batch that our own search decodes."""
    original = VaswaniSequenceGenerator.search_batch
    batches: List[str] = []

    def counting(self, net_input):
        batches.append(self.length_penalty)
        return original(self, net_input)

    monkeypatch.setattr(VaswaniSequenceGenerator, "search_batch", counting)
    return batches


@pytest.mark.parametrize("extra", [[], ["--lenpen", "0.6", "--nbest", "4"], ["--beam", "1"]])
def test_our_task_gives_the_same(tiny_data_bin, trained, extra, searches):
    """Its own beam search: every line that fairseq-generate prints, scores to 3 places."""
    theirs = stock.generate(tiny_data_bin, trained, *extra)
    assert searches == []
    ours = stock.generate(tiny_data_bin, trained, *OURS, *extra)
    assert set(searches) == {"fairseq"}
    assert ours[-1] == theirs[-1]
    for letter in "HDP":
        expected, found = stock.results(theirs, letter), stock.results(ours, letter)
        assert expected.keys() == found.keys()
        for number, columns in expected.items():
            subwords = (" ".join(columns).split(), " ".join(found[number]).split())
            for one, other in zip(*subwords, strict=True):
                assert one == other or float(one) == pytest.approx(float(other), abs=1e-3)


def test_our_task_in_interactive(tiny_data_bin, trained, searches):
    text = "1 2 3\n\n4 5 6 7\n"
    theirs = stock.interactive(tiny_data_bin, trained, text, "--buffer-size", "3")
    ours = stock.interactive(tiny_data_bin, trained, text, "--buffer-size", "3", *OURS)
    assert searches
    assert hypotheses(ours) == hypotheses(theirs)


def test_the_papers_length_penalty(tiny_data_bin, trained, searches):
    """A hypothesis' score is the sum of its tokens' divided by ((5 + length) / 6)^0.6 (6.1)."""
    lines = stock.generate(tiny_data_bin, trained, *GNMT, "--max-len-a", "1", "--max-len-b", "50")
    assert set(searches) == {"gnmt"}
    for number, (column,) in stock.results(lines, "P").items():
        tokens = [float(score) for score in column.split()]
        expected = sum(tokens) / ((5 + len(tokens)) / 6) ** 0.6
        score = float(stock.results(lines, "H")[number][0])
        assert score == pytest.approx(expected, abs=1e-3)  # printed to 4 places


@pytest.mark.parametrize(
    "options,named",
    [
        (["--print-alignment"], "--print-alignment"),
        (["--sampling", "--nbest", "4", "--seed", "1"], "another search (Sampling)"),
        (PREFIX, "a prefix"),
    ],
)
def test_what_our_task_leaves_to_fairseqs_search(tiny_data_bin, trained, options, named):
    """The same output, and one warning where the scores are not those asked for."""
    lenpen = ["--lenpen", "0.6"]
    theirs = stock.generate(tiny_data_bin, trained, *options, *lenpen)
    with stock.logged() as logged:
        ours = stock.generate(tiny_data_bin, trained, *GNMT, *options)
    for letter in "HA":
        assert stock.results(ours, letter) == stock.results(theirs, letter)
    (message,) = [line for line in logged if "fairseq's own search" in line]
    assert message.startswith(named) and message.endswith("not --length-penalty gnmt")


def test_bleu_in_validation_is_by_our_search(tiny_data_bin, tmp_path, searches):
    options = '{"beam": 2, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 5}'
    bleu = ["--eval-bleu", "--eval-bleu-args", options]
    lines = stock.train(tiny_data_bin, tmp_path, *GNMT[:4], *bleu, "--max-update", "4")
    assert set(searches) == {"gnmt"}
    assert any(" | bleu " in line for line in lines)
