"""Where preparation reads from and writes to; refused if one is inside the other."""

import os
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from vaswani.common.errors import UserError
from vaswani.data import text
from vaswani.data.recipe import RECIPE_FILE, Recipe
from vaswani.data.stage import STAGES
from vaswani.data.steps import Job, Pair
from vaswani.experiment.find import DEMO_TEXT, SHIPPED


def source_files(recipe: Recipe, folder: Path) -> Dict[str, List[Pair]]:
    """The two files of each set of one's own text; of trees, the same file for both sides.

    Without a folder, the demo's text is that which comes with ``vaswani``.

    Raises:
        UserError: one is missing or empty.
    """
    files: Dict[str, List[Pair]] = {}
    for split in text.SPLITS:
        for name in recipe.parts(split):
            comes_with_it = not folder.parts and (SHIPPED / name).parent == DEMO_TEXT
            prefix = (SHIPPED if comes_with_it else folder) / name
            if recipe.trees:
                if not prefix.is_file():
                    raise UserError(f"there is no file {prefix}: it should hold the {split} trees")
                files[split] = [(prefix, prefix)]
                continue
            try:
                source, target = (text.find_text(prefix, lang) for lang in recipe.langs)
            except UserError as error:
                lost = prefix.parent == Path()
                hint = "; give their folder with --text" if lost else ""
                raise UserError(f"{error}{hint}") from None
            files.setdefault(split, []).append((source, target))
    return files


def check_places(job: Job, names: Sequence[str], sources: Dict[str, List[Pair]]) -> None:
    """Check, before anything is touched, what stages of these ``names`` would replace.

    Raises:
        UserError: an input is inside an output.
    """
    outputs = [job.folder / name for name in (*names, STAGES, RECIPE_FILE)]
    for what, path in read_by(job, sources):
        for output in outputs:
            if what == "recipe" and output.name == RECIPE_FILE:
                continue  # it may be repeated; changed by hand, it is kept
            if lies_in(path, output):
                raise UserError(
                    f"the {what} {path} is in {output}, which this command makes itself: move "
                    "it elsewhere, or give another --out"
                )


def read_by(job: Job, sources: Dict[str, List[Pair]]) -> Iterator[Tuple[str, Path]]:
    """What a preparation reads, each with its description."""
    if job.parts:
        yield "folder of archives", job.archives
    else:
        for split, pairs in sources.items():
            yield from ((f"{split} text", path) for pair in pairs for path in pair)
    yield from job.read.items()


def lies_in(path: Path, output: Path) -> bool:
    """Whether a path is an output or below it: by name, through links, or in another case."""
    output_names = {os.path.abspath(output), os.path.realpath(output)}
    output_ids = identities([output])
    for name in {os.path.abspath(path), os.path.realpath(path)}:
        places = [Path(name), *Path(name).parents]
        if output_names & {str(place) for place in places} or output_ids & identities(places):
            return True
    return False


def identities(paths: Sequence[Path]) -> Set[Tuple[int, int]]:
    """Device and inode of those that exist: they identify a folder under any name."""
    devices_and_inodes = set()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        devices_and_inodes.add((status.st_dev, status.st_ino))
    return devices_and_inodes
