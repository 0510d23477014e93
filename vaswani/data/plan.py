"""What a large preparation will take, shown before it starts: download, disk, memory, time.

The figures per pair are from benchmarks/results/ (…_prepare.md, …_unspaced.md), for English-French
statutes of 27 words per sentence, WMT's length; another processor may be twice as fast or slow.
"""

import shutil
from pathlib import Path
from typing import List

from vaswani.common.progress import clock
from vaswani.data.bpe import MOST_WORDS
from vaswani.data.pieces import MOST_LINES
from vaswani.data.steps import Job
from vaswani.data.subwords import KINDS, SENTENCEPIECE

#: with fewer pairs, preparation is done before one has read the plan
WORTH_A_PLAN = 200_000
#: pairs per second on one core, and bytes on disk per pair
PAIRS_A_SECOND = {"text": 53_000, "tok": 5_400, "bpe": 14_800, "data-bin": 3_800}
BYTES_A_PAIR = {"raw": 340, "text": 340, "tok": 350, "bpe": 355, "data-bin": 160}
#: the same for stages with a single process; and seconds to learn 32,000 merges, at most
EXTRACTED_A_SECOND, LEARNED_A_SECOND, LEARNING = 400_000, 7_000, 1200.0
#: SentencePiece learns from pairs up to MOST_LINES; and bytes of memory for each
PIECES_LEARNED_A_SECOND, PIECES_BYTES_A_PAIR = 4_000, 6_000
GB = 1e9


def plan(job: Job, pairs: int, stages: List[str]) -> str:
    """A few lines of plan for the stages still to be done."""
    lines = [f"plan for {job.folder}: {pairs:,} training pairs, stages {', '.join(stages)}"]
    if "raw" in stages:
        lines.append(download_line(job))
    disk = sum(pairs * BYTES_A_PAIR.get(name, 0) for name in stages)
    free = shutil.disk_usage(nearest_existing(job.folder)).free
    lines.append(f"  disk      about {disk / GB:.1f} GB in {job.folder} ({free / GB:.1f} GB free)")
    pieces = job.recipe.subword == SENTENCEPIECE
    lines.append(f"  memory    {memory(pairs, job.workers, pieces):.1f} GB at most")
    lines.append(
        f"  time      about {clock(seconds(pairs, stages, job.workers))} with {job.workers} "
        "processes, downloads aside"
    )
    if free < disk:
        lines.append("  warning: there is less space than that; the stages that fit are kept")
    return "\n".join(lines)


def download_line(job: Job) -> str:
    """Which archives are there, and which must be downloaded."""
    sources = [part.sources for parts in job.parts.values() for part in parts]
    absent = [s for s in sources if not any((job.archives / one.name).is_file() for one in s)]
    known = sum(max(one.bytes or 0 for one in s) for s in absent)
    unknown = sum(all(one.bytes is None for one in s) for s in absent)
    line = f"  download  {len(absent)} of {len(sources)} archives to {job.archives}"
    if absent:
        line += f", {known / GB:.1f} GB"
        line += f" and {unknown} of unstated size" if unknown else ""
    return line


def nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest existing folder above it."""
    for path in (folder.absolute(), *folder.absolute().parents):
        if path.is_dir():
            return path
    return Path()


def memory(pairs: int, workers: int, pieces: bool = False) -> float:
    """GB: the streaming stages' chunks, the words that the BPE is learned from (or SentencePiece's
    ``pieces``, from lines), or what fairseq keeps per pair while it writes an index (about 60
    bytes), whichever is largest."""
    streaming = 0.3 + 0.2 * workers
    learning = 2e-6 * min(MOST_WORDS, pairs) + 0.3
    if pieces:
        learning = PIECES_BYTES_A_PAIR / GB * min(MOST_LINES / 2, pairs) + 0.1
    return max(streaming, learning, 60e-9 * pairs + 0.4)


def seconds(pairs: int, stages: List[str], workers: int) -> float:
    """How long the stages take, those with all processes and those with one."""
    shared = sum(pairs / PAIRS_A_SECOND[name] for name in stages if name in PAIRS_A_SECOND)
    alone = pairs / EXTRACTED_A_SECOND if "raw" in stages else 0.0
    if "codes" in stages:
        alone += min(LEARNING, pairs / LEARNED_A_SECOND)
    if KINDS[SENTENCEPIECE].in_data in stages:
        alone += min(MOST_LINES / 2, pairs) / PIECES_LEARNED_A_SECOND
    return shared / workers + alone
