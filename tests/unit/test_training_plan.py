"""The arithmetic of ``vaswani plan``, and the experiments it is for: numbers by hand."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from tests.models import SMALL, dictionary, task
from transformer_plugin.config import VaswaniTransformerConfig
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from transformer_plugin.model import VaswaniTransformerModel
from vaswani import cli
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.planning import arithmetic, batching
from vaswani.planning.arithmetic import MemoryUse, Sizes
from vaswani.planning.batching import Batch
from vaswani.planning.training_plan import disk
from vaswani_transformer.fast.processor import OTHER_CPU

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
WMT = [f"wmt14_en_{target}_{size}" for target in ("de", "fr") for size in ("base", "big")]
TABLE_3 = OmegaConf.load(CONFIGS / "table3.yaml")

BASE = Sizes(6, 6, 512, 2048, 2048, 8, 8, 32_768)
BIG = Sizes(6, 6, 1024, 4096, 4096, 16, 16, 32_768)


@pytest.mark.paper("5.1", "5.2", "5.3", "5.4")
@pytest.mark.parametrize("name", WMT)
def test_the_experiment_is_the_papers(name):
    """Sections 5.1 to 5.4 and 6.1, read off the complete configuration."""
    config = read_configuration(CONFIGS / f"{name}.yaml")
    big = name.endswith("big")
    assert config.task.batch_tokens == 25_000
    assert config.optimization.max_update == (300_000 if big else 100_000)
    assert config.optimization.clip_norm == 0
    assert config.lr_scheduler.warmup_updates == 4000 and config.lr_scheduler.lr_factor == 1
    assert config.optimizer.adam_eps == 1e-9
    assert config.model.dropout == (0.3 if name == "wmt14_en_de_big" else 0.1)
    assert not config.model.untie_embeddings
    # ten minutes of 0.4 or 1.0 s an update, and as many as are averaged
    assert config.checkpoint.save_interval_updates == (600 / 1.0 if big else 600 / 0.4)
    assert config.checkpoint.keep_interval_updates >= (20 if big else 5)
    # of which none is left out: one more than are averaged, in case an epoch ends at one
    assert config.task.save_all_last == (20 * 600 if big else 100_000 - 93_000)
    # nothing at the ends of epochs, of which there are 2 (En-Fr base) to 56 (En-De big)
    assert config.checkpoint.no_epoch_checkpoints and config.checkpoint.save_interval > 100
    assert (config.generation.beam, config.generation.lenpen) == (4, 0.6)
    assert (config.generation.max_len_a, config.generation.max_len_b) == (1, 50)
    sizes = arithmetic.sizes_of(config.model, 37_000)
    widths = (1024, 4096, 4096) if big else (512, 2048, 2048)
    assert (sizes.encoder_layers, sizes.decoder_layers) == (6, 6)
    assert (sizes.d, sizes.encoder_f, sizes.decoder_f) == widths
    padded = 8 * config.dataset.max_tokens * config.optimization.update_freq[0]
    assert 0.84 < 25_000 / padded < 0.9  # the share that is real, about 0.87


@pytest.mark.paper("6.2")
@pytest.mark.parametrize("row", TABLE_3.rows)
def test_each_row_of_table_3_is_an_experiment(row):
    """Its changes give a configuration that differs from the base in them alone."""
    path = CONFIGS / f"{TABLE_3.base}.yaml"
    change = list(TABLE_3.rows[row].change)
    config = read_configuration(path, change)
    for override in change:
        key, value = override.split("=")
        assert str(OmegaConf.select(config, key)).lower() == value
    if row == "big":  # Table 3's last row: P_drop 0.3; its 300k updates are no part of the change
        assert (config.model.encoder_embed_dim, config.model.dropout) == (1024, 0.3)
    else:
        changed = {key.split("=")[0] for key in change}
        base = read_configuration(path)
        for section in ("model", "criterion"):
            for name, value in base[section].items():
                assert f"{section}.{name}" in changed or config[section][name] == value


# matrices: 6 layers × 2 operations × (projections + feed-forward); then keys and values over the
# source; scores and weighting over 28 tokens, the causal half in the decoder's own; the output
BASE_SOURCE = 12 * (4 * 512**2 + 2 * 512 * 2048) + 24 * 512**2 + 24 * 28 * 512
BASE_TARGET = 12 * (6 * 512**2 + 2 * 512 * 2048) + 2 * 512 * 32_768 + (12 + 24) * 28 * 512
BIG_SOURCE = 12 * (4 * 1024**2 + 2 * 1024 * 4096) + 24 * 1024**2 + 24 * 28 * 1024
BIG_TARGET = 12 * (6 * 1024**2 + 2 * 1024 * 4096) + 2 * 1024 * 32_768 + (12 + 24) * 28 * 1024


@pytest.mark.paper("table 1")
@pytest.mark.parametrize(
    ("sizes", "source", "target", "pair"),
    [(BASE, BASE_SOURCE, BASE_TARGET, 367e6), (BIG, BIG_SOURCE, BIG_TARGET, 1.263e9)],
)
def test_operations_of_a_token(sizes, source, target, pair):
    """Our count of a model's operations, in which Table 1's n² · d is one term of several.

    ``pair``: training on one token a side, computed independently, 3 or 4 digits.
    """
    assert arithmetic.source_flops(sizes, 28) == source
    assert arithmetic.target_flops(sizes, 28, 28) == target
    trained = arithmetic.training_flops(sizes, 1, 1, 1, (28, 28))
    assert trained == pytest.approx(pair, rel=2e-3)


def bytes_that_autograd_keeps(config, vocabulary, length):
    """Count the bytes that the backward pass needs of an update of two sentences by our criterion.

    Returns:
        the bytes besides the parameters, and the number of parameters
    """
    own_task = task(dictionary(vocabulary))
    model = VaswaniTransformerModel.build_model(config, own_task).train()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens, lengths = torch.randint(4, vocabulary, (2, length)), torch.full((2,), length)
    net_input = {"src_tokens": tokens, "src_lengths": lengths, "prev_output_tokens": tokens}
    sample = {"net_input": net_input, "target": tokens, "ntokens": tokens.numel()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        VaswaniLabelSmoothedCrossEntropy(own_task, False, 0.1)(model, sample)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return sum(t.untyped_storage().nbytes() for p, t in kept.items() if p not in own), parameters


@pytest.mark.parametrize("vocabulary", [500, 4000])
@pytest.mark.parametrize(
    ("precision", "implementation"), [("bf16", "readable"), ("fp32", "readable"), ("fp32", "auto")]
)
def test_memory_is_neither_underestimated_nor_doubled(
    vocabulary, precision, implementation, monkeypatch
):
    """Against what a real update keeps; fast, the larger vocabulary fits only without its logits.

    The fused kernel in bf16 is left out: on a CPU it keeps float32, on a GPU it does not.
    """
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", lambda _: True)
    longest = arithmetic.LONG_SENTENCE
    readable = implementation == "readable"
    sides = ("encoder", "decoder")
    widths = {f"{s}_{n}": w for s in sides for n, w in (("embed_dim", 64), ("ffn_embed_dim", 256))}
    positions = {"max_source_positions": longest, "max_target_positions": longest}
    chosen = {"dropout": 0.1, "attention_impl": implementation, "precision": precision}
    options = {**SMALL, **widths, **positions, **chosen}
    config = VaswaniTransformerConfig(**options)
    used, parameters = bytes_that_autograd_keeps(config, vocabulary, longest)
    product_bytes = 2 if precision == "bf16" else 4
    kept = MemoryUse(product_bytes, readable, readable, OTHER_CPU.product_rows)
    sizes = arithmetic.sizes_of(OmegaConf.create(options), vocabulary)
    whole = arithmetic.memory_bytes(sizes, parameters, 2 * longest, kept)
    estimate = whole - arithmetic.RESERVED_BYTES - arithmetic.BYTES_PER_PARAMETER * parameters
    # logits are there for a moment, so not among what is kept; the formula keeps their logarithms
    rows = 2 * 2 * longest if readable else 2 * 512
    assert used <= estimate - 4 * vocabulary * rows <= 2 * used


@pytest.mark.parametrize(("compiled", "measured"), [(False, 11.0), (True, 12.2)])
def test_memory_on_a_gpu_is_not_underestimated(compiled, measured):
    """GB that an H200 reserved for the base model in bf16, 25,000 max-tokens, V 31,000."""
    config = read_configuration(
        CONFIGS / "wmt14_en_de_base.yaml", ["model.precision=bf16", f"model.compile={compiled}"]
    )
    use = batching.memory_use(config, gpus=1)
    sizes = arithmetic.sizes_of(config.model, 31_000)
    estimate = arithmetic.memory_bytes(sizes, 60_000_000, 25_000, use) / 1e9
    assert measured < estimate < 1.5 * measured
    shared = arithmetic.memory_bytes(sizes, 60_000_000, 25_000, batching.memory_use(config, gpus=8))
    assert shared / 1e9 - estimate == pytest.approx(4 * 0.06)  # a second gradient, for DDP


@pytest.mark.parametrize(
    ("padded", "gpus", "most", "expected"),
    [
        (28_672, 8, 10_000, (3584, 1)),
        (28_672, 1, 10_000, (9560, 3)),  # 28,672 / 3 = 9,557, of which the nearest multiple of 8
        (100, 8, 10_000, (16, 1)),
    ],
)
def test_the_batch_is_shared_out(padded, gpus, most, expected):
    assert arithmetic.share_out(padded, gpus, most) == expected


@pytest.mark.parametrize(
    ("changes", "files"),
    [
        ({"save_interval_updates": 300}, 3),
        ({"save_interval_updates": 100, "keep_interval_updates": 5}, 5),
        ({"no_epoch_checkpoints": False, "save_interval": 3}, 3),
    ],
)
def test_checkpoints_that_are_kept_take_disk_space(changes, files):
    """900 updates, 100 an epoch; the last and the best are counted, and one that is written."""
    usual = {"save_interval": 1, "save_interval_updates": 0, "keep_interval_updates": -1}
    usual |= {"no_epoch_checkpoints": True, "keep_last_epochs": -1}
    batch = Batch(4096, 1, 4000.0, 4000.0, updates_per_epoch=100)
    found = disk(OmegaConf.create({**usual, **changes}), 10, 900, batch)
    assert (found.checkpoints, found.needed_bytes) == (files + 2, (files + 3) * 120 + 40)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["wmt14_en_de_big", "--gpus", "1", "--memory", "4"], "4 GB"),
        (["wmt14_en_de_base", "--gpus", "500"], "500 GPUs"),
        (["demo_en_de", "--gpus", "1"], "vaswani prepare demo_en_de"),
    ],
)
def test_an_impossible_plan_is_one_sentence(argv, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", *argv]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and named in lines[0]


def test_the_papers_batch_and_hours(capsys, tmp_path, monkeypatch):
    """No data: 25,000 target tokens, the configs' own batch; 100,000 updates at a given speed."""
    monkeypatch.chdir(tmp_path)
    speed = ["--tokens-per-second", "500000"]
    assert cli.main(["plan", "wmt14-en-de-base", "--gpus", "8", *speed]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    found = {line[2:15].strip(): line[15:] for line in lines[1:-2]}
    assert found["time"].startswith("1.4 hours")
    assert "estimated" in found["real tokens"] and "25,000 target" in found["real tokens"]
    assert "vaswani train wmt14-en-de-base dataset.max_tokens=3592" in lines[-1]
