"""A translation service: POST {"sentences": ["…"]} to /translate.

MODEL=models/tatoeba_en_de uvicorn service:app
"""

import os

from fastapi import FastAPI
from pydantic import BaseModel, Field

from vaswani import Translator

app = FastAPI()
translator = Translator.from_pretrained(os.environ["MODEL"])


class Request(BaseModel):
    """The sentences to translate."""

    sentences: list[str] = Field(max_length=100)


@app.post("/translate")
def translate(request: Request) -> list[str]:
    """The translations, one for each sentence. FastAPI calls this from its threads."""
    return [translation.text for translation in translator.translate(request.sentences)]
