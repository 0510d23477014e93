# ruff: noqa: ANN001
"""A model of fairseq: its own transformer, or with OURS=1 this project's plugin.

    vaswani check examples/check/fairseq_model.py
    OURS=1 vaswani check examples/check/fairseq_model.py

Options are those with which fairseq's examples/scaling_nmt trains, and the plugin's recipe.
"""

import os
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import models, sequence_generator
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.lr_scheduler import inverse_square_root_schedule as inverse_sqrt
from omegaconf import OmegaConf

from transformer_check import Config

OURS = os.environ.get("OURS") == "1"
if OURS:
    import transformer_plugin  # noqa: F401
    from transformer_plugin.config import VaswaniInverseSqrtConfig
    from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
    from transformer_plugin.generator import VaswaniSequenceGenerator
    from transformer_plugin.lr_schedule import VaswaniInverseSqrt
    from vaswani_transformer.attention import causal_mask
    from vaswani_transformer.fast.attention import fused_attention

CONFIG = Config(start=2)
BETAS = "(0.9, 0.98)"


def dictionary(types: int) -> Dictionary:
    """Return a dictionary of fairseq's four special types and other types."""
    words = Dictionary()
    for number in range(types - len(words)):
        words.add_symbol(f"w{number}")
    return words


def build(config):
    """Build a model with one dictionary and one shared matrix."""
    sizes = {
        "embed_dim": config.d_model,
        "ffn_embed_dim": config.d_ff,
        "layers": config.layers,
        "attention_heads": config.heads,
        "learned_pos": config.learned_positions,
    }
    both = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    arch = "vaswani_transformer" if OURS else "transformer_wmt_en_de"
    args = Namespace(arch=arch, **both, dropout=config.dropout, share_all_embeddings=True)
    args.max_source_positions = args.max_target_positions = config.max_length
    words = dictionary(config.vocabulary)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, cfg=None)
    if OURS:
        chosen = models.MODEL_DATACLASS_REGISTRY[arch]()
        for name, value in vars(args).items():
            if hasattr(chosen, name):
                setattr(chosen, name, value)
        return models.ARCH_MODEL_REGISTRY[arch].build_model(chosen, task)
    models.ARCH_CONFIG_REGISTRY[arch](args)
    return models.ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def net_input(source, target):
    """Return the arguments of the model, as in a batch of fairseq."""
    lengths = source.ne(CONFIG.pad).sum(1)
    return {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target}


def logits(model, source, target):
    """Return the logits that the criterion gets."""
    return model(**net_input(source, target))[0]


def embedding(model, ids):
    """Return the encoder's embeddings."""
    if OURS:
        return model.encoder.embedding(ids)
    return model.encoder.forward_embedding(ids)[0]


def target_embedding(model, ids):
    """Return the decoder's embeddings, for which fairseq's decoder has no function."""
    decoder = model.decoder
    if OURS:
        return decoder.embedding(ids)
    words = decoder.embed_scale * decoder.embed_tokens(ids)
    return decoder.dropout_module(words + decoder.embed_positions(ids))


def encoder_layer(model, x):
    """Call the first encoder layer; fairseq's has the sequence first."""
    if OURS:
        return model.encoder.layers[0](x, None)
    return model.encoder.layers[0](x.transpose(0, 1), None).transpose(0, 1)


def decoder_layer(model, x, memory):
    """Call the first decoder layer; fairseq's has the sequence first, and a mask of -inf."""
    layer = model.decoder.layers[0]
    if OURS:
        return layer(x, causal_mask(x.size(1)), memory, None)
    x, memory = x.transpose(0, 1), memory.transpose(0, 1)
    mask = model.decoder.buffered_future_mask(x)
    return layer(x, memory, self_attn_mask=mask)[0].transpose(0, 1)


if OURS:  # fairseq has it inside of its MultiheadAttention

    def attention(q, k, v, mask):
        """Call the plugin's attention, computed by a kernel of torch."""
        return fused_attention(q, k, v, mask)


def loss(logits, target):
    """Return the loss of fairseq's criterion for a model that returns these logits."""
    task = SimpleNamespace(target_dictionary=dictionary(logits.size(-1)))
    criterion = LabelSmoothedCrossEntropyCriterion(task, True, CONFIG.label_smoothing)
    model = SimpleNamespace(
        get_normalized_probs=lambda output, log_probs: output[0].log_softmax(-1),
        get_targets=lambda sample, output: sample["target"],
    )
    return criterion.compute_loss(model, (logits,), {"target": target})[0]


def training_loss(model, source, target):
    """Return the loss of fairseq's criterion for a batch of sentences."""
    task = SimpleNamespace(target_dictionary=model.decoder.dictionary)
    kind = LabelSmoothedCrossEntropyCriterion
    if OURS:
        kind = VaswaniLabelSmoothedCrossEntropy
    criterion = kind(task, False, CONFIG.label_smoothing)
    previous = target.roll(1, dims=1)
    previous[:, 0] = CONFIG.start
    sample = {"net_input": net_input(source, previous), "target": target}
    sample |= {"ntokens": int(target.ne(CONFIG.pad).sum()), "nsentences": len(target)}
    return criterion(model, sample)[0]


def optimizer(model):
    """Return the optimizer of the README's command, which sets β and not ε."""
    options = {"adam_betas": BETAS, "adam_eps": 1e-9 if OURS else 1e-8, "weight_decay": 0.0}
    more = {"use_old_adam": True, "fp16_adam_stats": False, "tpu": False, "lr": [5e-4]}
    return FairseqAdam(OmegaConf.create({**options, **more}), model.parameters()).optimizer


def learning_rate(step):
    """Return the rate of the README's command, or the plugin's of the base model."""
    adam = SimpleNamespace(set_lr=lambda lr: None)
    if OURS:
        chosen = VaswaniInverseSqrtConfig(d_model=512, warmup_updates=4000)
        schedule = VaswaniInverseSqrt.__new__(VaswaniInverseSqrt)
        schedule.cfg = chosen
        schedule.d_model = 512
        schedule.optimizer = adam
        return schedule.step_update(step - 1)
    schedule = inverse_sqrt.InverseSquareRootSchedule.__new__(
        inverse_sqrt.InverseSquareRootSchedule
    )
    schedule.optimizer = adam
    schedule.cfg = inverse_sqrt.InverseSquareRootLRScheduleConfig(warmup_init_lr=1e-7)
    schedule.lr_step = (5e-4 - 1e-7) / 4000
    schedule.decay_factor = 5e-4 * 4000**0.5
    return schedule.step_update(step - 1)


def translate(model, source):
    """Translate by its generator, with the paper's beam, penalty and limit if it has them."""
    options: dict[str, Any] = {"beam_size": 4, "max_len_a": 1, "max_len_b": 50, "len_penalty": 0.6}
    arguments = ([model], model.decoder.dictionary)
    if OURS:
        generator = VaswaniSequenceGenerator(*arguments, "gnmt", **options)
    else:
        generator = sequence_generator.SequenceGenerator(*arguments, **options)
    sample = {"net_input": {k: v for k, v in net_input(source, None).items() if v is not None}}
    with torch.no_grad():
        return [best[0]["tokens"].tolist() for best in generator.generate([model], sample)]
