"""An experiment as the text of a YAML file in which every value is explained."""

import textwrap
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

#: line width, as in the shipped experiments
WIDTH = 100
#: so that fairseq-hydra-train creates no extra folders
HYDRA = ["hydra:", "  run:", "    dir: .", "  output_subdir: null"]


class Entry(NamedTuple):
    """A key of a section, its value, and the reason for it (may be empty)."""

    key: str
    value: Any
    reason: str = ""


Sections = Dict[str, List[Entry]]


def text_of(head: Sequence[str], sections: Sections) -> str:
    """The file: comment paragraphs, then the sections, each reason a comment above its key."""
    lines: List[str] = []
    for paragraph in head:
        lines += comment(paragraph) if paragraph else ["#"]
    for name, entries in sections.items():
        lines.append(f"{name}:")
        for entry in entries:
            lines += comment(entry.reason, "  ") if entry.reason else []
            lines.append(f"  {entry.key}: {plain(entry.value)}")
    return "\n".join(lines + HYDRA) + "\n"


def comment(text: str, indent: str = "") -> List[str]:
    """The lines of a comment; text that begins with spaces (a command) is not wrapped."""
    if text.startswith(" "):
        return [f"{indent}#{text}"]
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )


def plain(value: Any) -> str:
    """A value as YAML, on one line; text that YAML would misread is in quotes."""
    import yaml

    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return dumped.splitlines()[0]


def common(user_dir: Optional[str] = None) -> List[Entry]:
    """The section ``common``, with the user-dir of the run that an experiment starts from."""
    own = user_dir and Path(user_dir).name != "transformer_plugin"  # else the plugin's own folder
    return [
        Entry("user_dir", user_dir if own else "transformer_plugin"),
        Entry("seed", 1),
        Entry("log_format", "json"),
        Entry("log_interval", 20),
    ]


def always(data: str, languages: Sequence[str], task: List[Entry]) -> Sections:
    """The sections that every experiment begins with: what it is, and its data.

    Args:
        data: the data-bin
        languages: source and target
        task: other entries of the task section
    """
    return {
        "common": common(),
        "task": [
            Entry("_name", "vaswani_translation"),
            Entry("data", data),
            Entry("source_lang", languages[0]),
            Entry("target_lang", languages[1]),
            *task,
            Entry(
                "length_penalty",
                "gnmt",
                "beam search as in the paper (6.1): generation.lenpen is its alpha",
            ),
        ],
    }


SEARCH = [
    Entry("beam", 4, "the paper's (6.1)"),
    Entry("lenpen", 0.6),
    Entry("max_len_a", 1),
    Entry("max_len_b", 50),
]
OPTIMIZER = [
    Entry("_name", "vaswani_adam", "5.3"),
    Entry("adam_betas", "(0.9, 0.98)"),
    Entry("adam_eps", 1e-9),
]
CRITERION = [
    Entry("_name", "vaswani_label_smoothed_cross_entropy", "5.4"),
    Entry("label_smoothing", 0.1),
]


def save_dir(name: str) -> str:
    """Where the checkpoints of an experiment go."""
    return str(Path("runs") / name / "checkpoints")
