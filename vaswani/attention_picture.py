"""One picture of what the decoder looks at in the source (section 3.2.3, as in figures 3 to 5)."""

from pathlib import Path
from typing import Any, List, Tuple

from vaswani.errors import UserError


def cross_attention(checkpoint: Path, config: Any, source: str, target: str) -> Tuple[Any, Any]:
    """The last decoder layer's cross-attention while it reads a translation (teacher forcing).

    Args:
        checkpoint: a model of this plugin
        config: fairseq's configuration for decoding (``vaswani.generate.generation_config``)
        source, target: BPE pieces joined by spaces

    Returns:
        weights [heads, target pieces + end, source pieces + end], and the pieces (target, source)

    Raises:
        UserError: the model does not return its heads' weights.
    """
    import torch
    from fairseq import checkpoint_utils, tasks

    task = tasks.setup_task(config.task)
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], task=task)
    model.eval()
    encode = {"append_eos": True, "add_if_not_exist": False}
    tokens = task.source_dictionary.encode_line(source, **encode).long()[None]
    answer = task.target_dictionary.encode_line(target, **encode).long()[None]
    previous = torch.cat([answer[:, -1:], answer[:, :-1]], dim=1)  # fairseq starts with the end
    with torch.no_grad():
        encoded = model.encoder(tokens, src_lengths=torch.tensor([tokens.size(1)]))
        _, extra = model.decoder(previous, encoder_out=encoded, need_head_weights=True)
    if "cross_attention" not in extra:
        raise UserError(f"{checkpoint} is no model of this plugin: its attention cannot be drawn")
    weights = extra["cross_attention"][-1][0]
    return weights.numpy(), (target.split() + ["(end)"], source.split() + ["(end)"])


def draw(path: Path, weights: Any, pieces: Tuple[List[str], List[str]]) -> None:
    """Draw the mean over heads, and each head, into a PNG.

    Args:
        weights: [heads, target, source], each row a distribution over the source
        pieces: the labels (target, source)
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from vaswani.files import atomic_write

    heads = weights.shape[0]
    figure, axes = pyplot.subplots(
        1, heads + 1, figsize=(3.2 * (heads + 1), 0.28 * len(pieces[0]) + 2), sharey=True
    )
    maps = [weights.mean(axis=0), *weights]
    names = ["mean of heads", *(f"head {number}" for number in range(1, heads + 1))]
    for axis, grid, name in zip(axes, maps, names, strict=True):
        axis.imshow(grid, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        axis.set_title(name, fontsize=9)
        axis.set_xticks(range(len(pieces[1])), pieces[1], rotation=90, fontsize=7)
        axis.set_yticks(range(len(pieces[0])), pieces[0], fontsize=7)
    figure.suptitle("Cross-attention of the last decoder layer (rows: target, columns: source)")
    figure.tight_layout()
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=110)
    pyplot.close(figure)
