"""Tables in Markdown, and pages that are read elsewhere than where they were written.

setup.py uses it, too.
"""

import re
from collections.abc import Sequence
from pathlib import Path

#: images and links of Markdown, whose text may contain brackets, and images of HTML
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"[^>]*>")
#: between two lines of three dashes at the beginning of a page
FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
FENCE = "```"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: its columns, the rule, and its rows."""
    cells = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def without_dead_links(text: str, folder: Path | None = None) -> str:
    """Return a page without links to files that it does not have where it will be read.

    Such a link becomes its text; such an image is left out.

    Args:
        text: the page
        folder: where it will be; links to files that are there stay. None: no file is there
    """

    def replacement(link: "re.Match[str]") -> str:
        path = (link[3] or link[4]).partition("#")[0]
        if re.match("https?:", path) or (folder and (folder / path).exists()):
            return link[0]
        is_image = link[1] or link[4]
        return "" if is_image else link[2]

    return LINK.sub(replacement, text)


def front_matter(text: str) -> list[str]:
    """Return the lines between the dashes at the beginning of a page."""
    match = FRONT_MATTER.match(text)
    return match[1].splitlines() if match else []


def as_section(text: str, without: str) -> str:
    """Return a page as a section of another page.

    Its front matter and its title are left out, and its headings are one level deeper.

    Args:
        text: the page
        without: the title of a section that is left out, too
    """
    lines = []
    in_code = False
    skipping = False
    for line in FRONT_MATTER.sub("", text, count=1).splitlines():
        if line.startswith(FENCE):
            in_code = not in_code
        level = 0 if in_code else heading_level(line)
        if level == 1:
            continue
        if level == 2:
            skipping = line == f"## {without}"
        if not skipping:
            lines.append(f"#{line}" if level else line)
    return "\n".join(lines).strip("\n")


def heading_level(line: str) -> int:
    """Return how deep a heading is, from 1; 0 for another line."""
    marks = re.match("#+(?= )", line)
    return len(marks[0]) if marks else 0
