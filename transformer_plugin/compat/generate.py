"""``fairseq-generate``: options that it accepts and does not pass on."""

from typing import Any

from fairseq_cli import generate
from omegaconf import OmegaConf, open_dict

from ..config import ConfigError
from .replacing import REPAIRS, replaces


@replaces(
    generate,
    "_main",
    REPAIRS,
    "all",
    "`--num-shards` with `--shard-id`, `--sacrebleu`, and `--replace-unk` without a file work",
)
def main(cfg: Any, output_file: Any) -> Any:
    """As fairseq's, which decodes all of the data, scores with its own BLEU, and opens "@@ ".

    Raises:
        ConfigError: there is no such shard.
    """
    shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
    if not 0 <= shard < shards:
        raise ConfigError(f"--shard-id {shard} must be at least 0 and below --num-shards {shards}")
    if shards > 1:
        cfg.distributed_training.distributed_world_size = shards
        cfg.distributed_training.distributed_rank = shard
    scoring = cfg.scoring
    if cfg.generation.sacrebleu and (scoring is None or scoring._name == "bleu"):
        with open_dict(cfg):
            cfg.scoring = OmegaConf.create({"_name": "sacrebleu"})
    if cfg.generation.replace_unk == "@@ ":  # the flag's constant, which stands for no file
        cfg.generation.replace_unk = ""
    return main.original(cfg, output_file)
