"""What the documents point to is there, their commands can be given, and their blocks run."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.files import needs_records
from vaswani import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("e*/**/README.md")]
#: but for caches, environments, and what building and training leave
TOP = [
    path
    for path in sorted(ROOT.iterdir())
    if path.is_dir()
    and not re.match(r"[._]|(build|dist|data|runs|outputs)$|.*egg-info$", path.name)
]
PAGES += [*ROOT.glob(".github/*.md"), *(folder / "README.md" for folder in TOP)]
PAGES = list(dict.fromkeys(PAGES))
RECORDS = [*ROOT.glob("benchmarks/results/*.md"), *ROOT.glob("experiments/**/*.md")]
PLACES = [ROOT, *(ROOT / name for name in ("transformer_plugin", "vaswani_transformer", "vaswani"))]
"""where CONTRIBUTING's table looks for a file"""
#: a link or an image in Markdown, an image in HTML
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


def without_code(path: Path) -> str:
    """Return a page's text, without its blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


@needs_records
def test_every_link_leads_somewhere():
    """Of the documents and of the records to files of the repository, and to headings in them."""
    broken = []
    for page in [*PAGES, *RECORDS]:
        for link in LINK.findall(without_code(page)):
            path, _, anchor = (link[0] or link[1]).partition("#")
            if path.startswith(("https:", "http:")):
                continue
            to = page.parent / path if path else page
            lines = re.fullmatch(r"L\d+", anchor)  # of a source file
            if not to.exists() or (anchor and not lines and anchor not in anchors(to)):
                broken.append(f"{page.relative_to(ROOT)}: {link[0] or link[1]}")
    assert broken == []


def test_issue_templates_name_pages_that_exist():
    """Their links are relative to the repository's page of issues on GitHub."""
    links = []
    broken = []
    for template in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"):
        for link in re.findall(
            r"\]\(\.\./blob/main/([^)\s]+)\)", template.read_text(encoding="utf-8")
        ):
            links.append(link)
            path, _, anchor = link.partition("#")
            page = ROOT / path
            if not page.is_file() or (anchor and anchor not in anchors(page)):
                broken.append(f"{template.name}: {link}")
    assert len(links) >= 3 and broken == []


def test_each_folders_page_begins_with_a_sentence_about_the_folder():
    """Each visible folder of the root has such a page; models' cards describe the model."""
    wrong = []
    for page in PAGES:
        if page.name != "README.md" or page.parent == ROOT:
            continue
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if not re.match(r"# .+\n\nThis (folder|package) [^\n]+", text):
            wrong.append(str(page.relative_to(ROOT)))
    assert wrong == []


#: a line that is one word in capitals, what an editor is to fill in, and addresses that are none
UNFILLED = re.compile(
    r"^[A-Z][A-Z _-]{2,}$|\b(?:TODO|FIXME|TBD|XXXX*)\b|URL-OF-|<(?:your|insert)[^>]*>|lorem ipsum",
    re.MULTILINE,
)


def test_no_document_has_an_unfilled_placeholder():
    """docs/extend.md had the bare word TABLE for two days, and README URL-OF-THIS-PAGE.

    Files named in capitals, and options' values in commands, are in blocks or between backticks.
    """
    places = []
    for page in [*PAGES, *RECORDS, *ROOT.glob("models/*/README.md")]:
        prose = re.sub(r"`[^`\n]*`", "", without_code(page))
        places += [f"{page.relative_to(ROOT)}: {word}" for word in UNFILLED.findall(prose)]
    assert places == []
    for text in ("TABLE\n", "see URL-OF-THIS-PAGE", "TODO: measure", "<insert figure>"):
        assert UNFILLED.search(text), text


#: as PyTorch's installation page gives it for pip on Linux without CUDA
CPU_BUILDS = "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"


def test_every_block_that_installs_pytorch_begins_with_its_cpu_builds():
    """Without that line pip downloads PyTorch for CUDA, with its libraries 5.5 GB."""
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.M):
            installed = re.findall(r"pip install (.*)", block)
            with_torch = re.search("torch|vaswani|fairseq", " ".join(installed))
            if with_torch and not block.startswith(CPU_BUILDS):
                wrong.append(f"{page.relative_to(ROOT)}: {installed[0]}")
    assert wrong == []


def test_the_documents_commands_can_be_given(monkeypatch):
    """Verbs, options and choices in blocks of shell; none is run."""
    for verb in cli.VERBS:
        monkeypatch.setattr(cli.module_of(verb), "run", lambda options: 0)
    given = []
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "vaswani" in words:
                    given.append(words[words.index("vaswani") + 1 :])
    assert len(given) > 20
    for words in given:
        ends = [n for n, word in enumerate(words) if word in {"|", "&&", ";", ">", "2>"}]
        assert cli.run_verb(words[: min(ends, default=None)]) == 0, words


def test_the_page_on_python_translates(monkeypatch, capsys):
    """docs/python.md: its examples with a shipped model; test_vaswani.py runs the other one."""
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    text, ids = (one for one in examples if "models/tatoeba_en_de" in one)
    exec(text, {})
    assert "Das Haus ist alt." in capsys.readouterr().out
    exec(ids, {})
    assert capsys.readouterr().out.startswith("['Es', 'ist', 'spät', '.', '</s>']")


def test_the_index_of_the_paper_is_true() -> None:
    """Names exist once, marks name items, and the page is what they make."""
    command = [sys.executable, "scripts/paper_index.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stderr


def test_the_index_of_the_paper_links_to_no_lines() -> None:
    """They change with every edit above them."""
    assert ".py#" not in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def test_the_map_of_the_plugin_is_complete() -> None:
    """CONTRIBUTING's table names every file of the plugin, and every file that it names exists."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where a thing goes\n")[2].partition("\n## ")[0]
    section = section.replace("`transformer_plugin/", "`")
    named = set(re.findall(r"(?<![\w/.])(?:[\w.]+/)*\w+\.py\b", section))
    named |= set(re.findall(r"(?<![\w/.])(?:\w+/)+(?![\w.])", section))
    there = {path.name for path in (ROOT / "transformer_plugin").glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in ROOT.glob("transformer_plugin/*/__init__.py")}
    gone = {name for name in named if not any((place / name).exists() for place in PLACES)}
    assert (there - named, gone) == (set(), set())
