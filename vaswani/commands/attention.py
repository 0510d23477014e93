"""Plots the attention weights of every head of a model, as a web page and as images.

    vaswani attention MODEL "A sentence."                 translation by the model
    vaswani attention MODEL "A sentence." "Ein Satz."     translation as given

MODEL is a folder made by 'vaswani pack', a run, or a checkpoint of a run. Every head of every layer
is shown, for the encoder's and the decoder's self-attention and for the cross-attention. In
attention.html, which works without a network connection, choose a layer and a head, and point at a
word. There is also one image per layer. For another sentence, the page and the images are replaced.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.files import atomic_write
from vaswani.common.options import argument, option
from vaswani.common.outputs import FolderOutputs
from vaswani.folders.run import Run

COMMAND = "vaswani attention"
PAGE = "attention.html"
RECORD = "attention.json"


@dataclass(frozen=True, kw_only=True)
class Options:
    """A model, a sentence, and where to put what is made."""

    model: str = argument("MODEL|RUN|CHECKPOINT", "a packed model, a run or a checkpoint")
    source: str = argument("SOURCE", "source sentence, in quotes")
    target: str | None = argument(
        "TARGET", "translation of SOURCE (default: the model's own)", default=None
    )
    out: str | None = option(
        metavar="FOLDER", help="output folder (default: NAME_attention in the current folder)"
    )
    by: str = option(
        "words",
        "show words or subwords, in the pictures and when the page opens (default: words)",
        choices=["words", "subwords"],
    )
    no_pictures: bool = option(False, "write only the web page, which is much faster")
    user_dir: str | None = option(
        metavar="DIR", help="folder that defines the model, if it is a variant of the paper's"
    )


def run(options: Options) -> int:
    """Write the attention page and pictures of the model that the arguments name."""
    from vaswani.attention_page.maps import attend, open_model
    from vaswani.attention_page.page import MOST_WEIGHTS, page
    from vaswani.attention_page.picture import draw_layers

    out = Path(options.out) if options.out else default_folder(options.model)
    outputs = FolderOutputs(out, RECORD, COMMAND)
    outputs.check()
    with open_model(options.model, options.user_dir) as model:
        attention = attend(model, options.source, options.target, MOST_WEIGHTS)
    if attention.unknown:
        words = ", ".join(f"'{word}'" for word in attention.unknown)
        print(f"warning: the model reads all or part of {words} as <unk>", file=sys.stderr)
    pictures = []
    with outputs.write() as draft:
        with atomic_write(draft.path / PAGE) as stream:
            stream.write(page(attention, options.by))
        if not options.no_pictures:
            pictures = draw_layers(draft.path, attention, options.by)
        draft.record.update(
            model=options.model,
            source=attention.source,
            target=attention.target,
            translated_by_the_model=attention.translated,
            unknown=attention.unknown,
        )
    print(f"{attention.source} → {attention.target}", file=sys.stderr)
    print(f"{out / PAGE}: open it in a browser", file=sys.stderr)
    if pictures:
        print(f"{out}: {len(pictures)} pictures, one per layer", file=sys.stderr)
    return 0


def default_folder(model: str) -> Path:
    """Return a folder here named after a model; for runs/NAME/model, after NAME."""
    path = Path(os.path.abspath(model))
    if path.suffix == ".pt":
        run = Run.of_checkpoint(path)
        path = run.folder if path.parent == run.checkpoints else path.with_suffix("")
    run = Run.of_model(path)
    name = run.folder.name if path == run.model else path.name
    return Path(f"{name or 'model'}_attention")
