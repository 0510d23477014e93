"""Marian of transformers on an exported folder: run by a Python that need not have this project.

    PYTHON -I marian_process.py FOLDER QUESTIONS ANSWERS

It imports torch, transformers and, for a tokenizer, sentencepiece, and reads and writes one JSON
file. Token ids include the end of sentence. See ``MarianEngine.ask`` for what is asked.
"""

import json
import os
import sys
import time
from typing import Any

#: of padding in expected tokens: not counted
IGNORED = -100


def padded(torch: Any, rows: list[list[int]], filler: int) -> Any:
    """Rows of ids as a tensor [B, longest row], filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


class Marian:
    """A model, and the tokenizer if the folder has one.

    Args:
        folder: for ``from_pretrained``
    """

    def __init__(self, folder: str) -> None:
        import transformers  # first, since it may be missing

        import torch  # isort: skip

        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.torch = torch
        self.versions = {"transformers": transformers.__version__, "torch": torch.__version__}
        self.model, loading = transformers.MarianMTModel.from_pretrained(
            folder, output_loading_info=True
        )
        self.model.eval()
        wrong = {name: sorted(map(str, keys)) for name, keys in loading.items() if keys}
        if wrong:
            raise ValueError(f"parameters do not fit: {wrong}")
        self.tokenizer: Any = None
        if os.path.isfile(os.path.join(folder, "source.spm")):
            self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder)

    def source(self, sources: list[list[int]]) -> dict[str, Any]:
        """A batch as the model takes it."""
        ids = padded(self.torch, sources, self.model.config.pad_token_id)
        return {"input_ids": ids, "attention_mask": ids.ne(self.model.config.pad_token_id).long()}

    def generate(self, sources: list[list[int]], **search: Any) -> list[list[int]]:
        """The best translation of each sentence, by generation_config.json and ``search``."""
        with self.torch.no_grad():
            found = self.model.generate(**self.source(sources), **search).tolist()
        end = self.model.config.eos_token_id
        rows = [row[1:] for row in found]  # the first token is the one that decoding starts with
        return [row[: row.index(end) + 1] if end in row else row for row in rows]

    def search(self, batches: list[dict[str, Any]]) -> dict[str, Any]:
        """The translations of batches, and how many seconds they took."""
        self.generate(**batches[0])  # one-time work
        start = time.perf_counter()
        found = [self.generate(**batch) for batch in batches]
        return {"found": found, "seconds": time.perf_counter() - start}

    def log_probabilities(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> list[list[float]]:
        """For each sentence, the log-probability of each token of its translation."""
        labels = padded(self.torch, targets, IGNORED)
        with self.torch.no_grad():
            logits = self.model(**self.source(sources), labels=labels).logits
        log_probs = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return [row[: len(ids)].tolist() for row, ids in zip(log_probs, targets, strict=True)]


def main() -> None:
    """Answer the questions."""
    folder, questions, answers = sys.argv[1:]
    marian = Marian(folder)
    with open(questions, encoding="utf-8") as stream:
        asked = json.load(stream)
    answer = {
        "versions": marian.versions,
        "log_probabilities": [marian.log_probabilities(**batch) for batch in asked["batches"]],
        "searches": [marian.search(batches) for batches in asked["searches"]],
    }
    if marian.tokenizer:
        answer["read"] = [marian.tokenizer(line)["input_ids"] for line in asked["lines"]]
        skip = {"skip_special_tokens": True}
        answer["written"] = list(marian.tokenizer.batch_decode(asked["texts"], **skip))
    with open(answers, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
