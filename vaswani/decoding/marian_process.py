"""Marian of transformers on an exported folder: run by a Python that need not have this project.

    PYTHON -I marian_process.py FOLDER

It imports torch, transformers and, for a tokenizer, sentencepiece. It reads one request per line as
JSON and answers each with a line: first, unasked, what there is, then what the function that is
asked for returns. Token ids include the end of sentence. It ends with its input.
"""

import json
import os
import sys
from typing import Any, Dict, List

#: of padding in expected tokens: not counted
IGNORED = -100


def padded(torch: Any, rows: List[List[int]], filler: int) -> Any:
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
        self.started = {
            "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
            "has_tokenizer": self.tokenizer is not None,
        }

    def source(self, sources: List[List[int]]) -> Dict[str, Any]:
        """A batch as the model takes it."""
        ids = padded(self.torch, sources, self.model.config.pad_token_id)
        return {"input_ids": ids, "attention_mask": ids.ne(self.model.config.pad_token_id).long()}

    def generate(self, sources: List[List[int]], **search: Any) -> List[List[List[int]]]:
        """Translations of each sentence, best first, by generation_config.json and ``search``."""
        with self.torch.no_grad():
            found = self.model.generate(**self.source(sources), **search).tolist()
        each = len(found) // len(sources)
        end = self.model.config.eos_token_id
        rows = [row[1:] for row in found]  # the first token is the one that decoding starts with
        rows = [row[: row.index(end) + 1] if end in row else row for row in rows]
        return [rows[first : first + each] for first in range(0, len(rows), each)]

    def log_probabilities(
        self, sources: List[List[int]], targets: List[List[int]]
    ) -> List[List[float]]:
        """For each sentence, the log-probability of each token of its translation."""
        labels = padded(self.torch, targets, IGNORED)
        with self.torch.no_grad():
            logits = self.model(**self.source(sources), labels=labels).logits
        log_probs = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return [row[: len(ids)].tolist() for row, ids in zip(log_probs, targets, strict=True)]

    def read(self, lines: List[str]) -> List[List[int]]:
        """The token ids of sentences, by the tokenizer."""
        return [self.tokenizer(line)["input_ids"] for line in lines]

    def write(self, targets: List[List[int]]) -> List[str]:
        """Token ids as text, by the tokenizer."""
        return list(self.tokenizer.batch_decode(targets, skip_special_tokens=True))


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints must not come between the answers
    marian = Marian(sys.argv[1])
    answer: Any = marian.started
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        name, arguments = json.loads(line)
        answer = getattr(marian, name)(**arguments)


if __name__ == "__main__":
    main()
