"""Searches with a packed model by ``vaswani_transformer`` alone: fairseq is neither needed nor loaded."""

from dataclasses import fields
from typing import Callable, Optional

from vaswani.common.errors import UserError
from vaswani.decoding.alignment import attended_subwords
from vaswani.decoding.engine import Batch, BatchHypotheses
from vaswani.decoding.processes import ProcessEngine
from vaswani.model_folder.folder import ModelFolder
from vaswani.model_folder.search_options import SearchOptions


class TorchEngine(ProcessEngine):
    """A packed model, ready to search.

    Args:
        folder: of the model
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one
        processes: as :class:`ProcessEngine`

    Raises:
        UserError: no such precision, or the folder is of another version.
    """

    def __init__(
        self,
        folder: ModelFolder,
        precision: str = "fp32",
        device: Optional[str] = None,
        processes: Optional[int] = None,
    ) -> None:
        import torch

        from vaswani_transformer.fast import use_fast_kernels
        from vaswani_transformer.fast.linear import convert_to_bf16, pack_weights
        from vaswani_transformer.fast.malloc import keep_freed_memory
        from vaswani_transformer.packed import build
        from vaswani_transformer.precision import PRECISIONS

        if precision not in PRECISIONS:
            raise UserError(f"--precision is {precision!r}; it may be {' or '.join(PRECISIONS)}")
        keep_freed_memory()
        try:
            model, self.source, self.target = build(
                folder.path, folder.config["architecture"], folder.langs
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise UserError(str(error)) from None
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        use_fast_kernels(model).requires_grad_(False)
        if precision == "bf16":
            convert_to_bf16(model)
        pack_weights(model)
        super().__init__(model, str(folder.path), processes)
        self.precision = precision
        self.longest_source = model.config.max_source_positions
        self.longest_target = model.config.max_target_positions

    def batch_searcher(self, options: SearchOptions) -> Callable[[Batch], BatchHypotheses]:
        """A function that searches one batch, in this process."""
        import torch

        from vaswani_transformer import search
        from vaswani_transformer.precision import autocast

        names = [item.name for item in fields(search.SearchOptions)]
        chosen = search.SearchOptions(**{name: getattr(options, name) for name in names})
        model = self.model

        def search_batch(batch: Batch) -> BatchHypotheses:
            source = self.source_of(batch)
            with torch.no_grad(), autocast(self.precision, self.device):
                memory = model.encoder(source)
                with seeded(options, batch, self.device):
                    if options.sampling:
                        results = search.sample(
                            *(model.decoder, memory, source, chosen),
                            *(options.sampling_topk, options.sampling_topp),
                        )
                        found = [[hypothesis(*one) for one in of_one] for of_one in results]
                    else:
                        found = beam(model.decoder, memory, source, chosen, self.longest_target - 1)
                if options.needs_attention:
                    attended = attended_subwords(model, source, found)
                    found = [list(map(with_attention, *rows)) for rows in zip(found, attended)]
            return found

        return search_batch
