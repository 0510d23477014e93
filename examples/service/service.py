"""A translation service: POST {"sentences": ["…"]} to /translate.

MODEL=models/tatoeba_en_de uvicorn --app-dir examples/service service:app

A request is translated in small batches, and requests take turns after each batch, so a short
request waits for at most one batch of every other request.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from vaswani import Translator
from vaswani.common.errors import UserError

SENTENCES_PER_REQUEST = 100
CHARACTERS_PER_REQUEST = 20_000
TOKENS_PER_REQUEST = 4_000
TOKENS_PER_SENTENCE = 250
"""A longer sentence is answered with ``too_long``: decoding it takes seconds."""
TOKENS_PER_BATCH = 500
"""Padding included."""


class Request(BaseModel):
    """The sentences to translate."""

    model_config = ConfigDict(extra="forbid")
    sentences: list[str] = Field(max_length=SENTENCES_PER_REQUEST)


@dataclass
class Answer:
    """The translation of a sentence.

    Attributes:
        text: the translation; empty for a blank sentence and for one that is too long
        too_long: whether the sentence was too long to translate
        unknown: words of the sentence that the model does not know
    """

    text: str
    too_long: bool
    unknown: list[str]


def load() -> Translator:
    """Load the model that the environment variable MODEL names, or exit with a sentence."""
    folder = os.environ.get("MODEL")
    if not folder:
        sys.exit("service: set MODEL to a folder made by 'vaswani pack' or 'vaswani export'")
    try:
        return Translator.from_pretrained(folder)
    except (UserError, OSError) as error:
        sys.exit(f"service: MODEL={folder}: {error}")


app = FastAPI()
translator = load()
turns = asyncio.Lock()  # the longest waiting request is next


def count_tokens(sentences: list[str]) -> list[int]:
    """Return the number of tokens of each sentence.

    Raises:
        HTTPException: they have too many characters or tokens for one request.
    """
    characters = sum(map(len, sentences))
    if characters > CHARACTERS_PER_REQUEST:
        raise HTTPException(
            413,
            f"{characters:,} characters in one request: send at most {CHARACTERS_PER_REQUEST:,}",
        )
    counts = [len(translator.read(sentence).subwords) + 1 for sentence in sentences]
    if sum(counts) > TOKENS_PER_REQUEST:
        raise HTTPException(
            413, f"{sum(counts):,} tokens in one request: send at most {TOKENS_PER_REQUEST:,}"
        )
    return counts


def batches(counts: list[int]) -> list[list[int]]:
    """Return the numbers of the sentences that are translated together, shortest first."""
    made: list[list[int]] = []
    for number in sorted(range(len(counts)), key=counts.__getitem__):
        if counts[number] > TOKENS_PER_SENTENCE:
            continue
        if not made or (len(made[-1]) + 1) * counts[number] > TOKENS_PER_BATCH:
            made.append([])
        made[-1].append(number)
    return made


@app.post("/translate")
async def translate(request: Request) -> list[Answer]:
    """Answer with one translation per sentence, in the order of the sentences."""
    counts = await run_in_threadpool(count_tokens, request.sentences)
    answers = [Answer("", too_long=True, unknown=[]) for _ in counts]
    for batch in batches(counts):
        async with turns:
            translations = await run_in_threadpool(
                translator.translate, [request.sentences[number] for number in batch]
            )
        for number, translation in zip(batch, translations, strict=True):
            answers[number] = Answer(translation.text, translation.too_long, translation.unknown)
    return answers


@app.get("/health")
def health() -> dict[str, str]:
    """Answer while the service is up."""
    return {"status": "ok", "model": str(translator.folder.path)}
