"""Render documents from Jinja2 templates; a template lies beside the code that fills it in.

Templates may use these filters, besides Jinja2's:

- ``thousands`` formats a number as 12,345;
- ``comment`` turns a paragraph into comment lines, as YAML has them;
- ``yaml``, ``shell`` and ``python`` write a value as a literal of that language;
- ``cell`` escapes a text for a cell of a Markdown table.
"""

import shlex
import textwrap
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

#: longest line of a comment, in characters, as in the shipped configurations
WIDTH = 100


def render(template: Path, **values: object) -> str:
    """Return the text of a template, filled in; it may extend another template of its folder.

    Raises:
        jinja2.UndefinedError: the template uses a value that ``values`` does not have.
    """
    return str(environment_in(template.parent).get_template(template.name).render(values))


@lru_cache(maxsize=None)
def environment_in(folder: Path) -> Environment:
    """Return Jinja2's environment for the templates in a folder; each template is compiled once."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,  # a line that holds only {% … %} leaves no empty line
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # most documents are not HTML; the HTML template escapes its values
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
    """Return a paragraph as comment lines of YAML, indented as its first line is."""
    lines = paragraph.strip("\n").splitlines()
    start = lines[0][: len(lines[0]) - len(lines[0].lstrip())] + "# "
    text = " ".join(line.strip() for line in lines)
    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )
    return wrapped + "\n"


def as_yaml(value: object) -> str:
    """Return a value as YAML, on one line; text that YAML would misread is in quotes."""
    import yaml  # comes with fairseq; the attention page, which needs no fairseq, does not use it

    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return str(dumped).splitlines()[0]


def as_cell(text: str) -> str:
    """Return a text for a cell of a Markdown table: ``|`` escaped, line ends as spaces."""
    return " ".join(text.split()).replace("|", r"\|")
