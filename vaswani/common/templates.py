"""Documents from Jinja2 templates; a template lies beside the code that fills it in.

Filters, besides Jinja2's: ``thousands`` (12,345); ``comment``, a paragraph as comment lines;
``yaml``, ``shell`` and ``python``, a value as each of them reads it; ``cell``, of a Markdown table.
"""

import shlex
import textwrap
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

#: of comments, as in the shipped configurations
WIDTH = 100


def render(template: Path, **values: object) -> str:
    """Fill in a template, which may extend another one in its folder.

    Raises:
        jinja2.UndefinedError: the template names a value that was not given.
    """
    return str(environment_in(template.parent).get_template(template.name).render(values))


@lru_cache(maxsize=None)
def environment_in(folder: Path) -> Environment:
    """Return Jinja2's environment for the templates in a folder; each template is compiled once."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,  # a line that holds only {% … %} leaves nothing behind
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # most documents are not HTML; the one that is escapes its values itself
    )
    environment.filters.update(
        thousands="{:,}".format,
        comment=as_comment,
        yaml=as_yaml,
        shell=shlex.quote,
        python=repr,
        cell=as_cell,
    )
    return environment


def as_comment(paragraph: str) -> str:
    """Return the lines of a comment in YAML, indented as the paragraph's first line is."""
    lines = paragraph.strip("\n").splitlines()
    start = lines[0][: len(lines[0]) - len(lines[0].lstrip())] + "# "
    text = " ".join(line.strip() for line in lines)
    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )
    return wrapped + "\n"


def as_yaml(value: object) -> str:
    """Return a value as YAML, on one line; text that YAML would misread is in quotes."""
    import yaml  # which comes with fairseq; the attention page does without it

    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return str(dumped).splitlines()[0]


def as_cell(text: str) -> str:
    """Return a cell of a Markdown table: ``|`` is escaped, and a line end is a space."""
    return " ".join(text.split()).replace("|", r"\|")
