"""``recipe.yaml`` in the folder of prepared data: how everything else there was made."""

from dataclasses import asdict, fields

from vaswani.common.artifact import key_of
from vaswani.data import stage, text
from vaswani.data.recipe import Recipe
from vaswani.data.steps import Job

RECIPE_FILE = "recipe.yaml"


def write_recipe(job: Job) -> None:
    """Write ``recipe.yaml``, which says how everything else was made."""
    import yaml

    content = yaml.safe_dump(asdict(job.recipe), sort_keys=False)
    path = job.folder / RECIPE_FILE
    there = path.read_bytes() if path.is_file() else b""
    if there == content.encode():
        return
    if not stage.record_of(path) and looks_written(there):
        stage.write_record(path, {"left": {".": len(there)}})
    stage.redo(path)
    lines = content.split("\n")[:-1]
    stage.run_stage(path, key_of(content), lambda aside: text.write_lines(aside, lines))


def looks_written(recipe: bytes) -> bool:
    """Whether an earlier version, which left no marker for it, wrote this ``recipe.yaml``.

    They wrote every existing key, with ``null`` if it was not given; nobody else would.
    """
    import yaml

    try:
        table = yaml.safe_load(recipe)
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    known = {item.name for item in fields(Recipe)}
    ours = isinstance(table, dict) and None in table.values() and set(table) <= known
    return ours and yaml.safe_dump(table, sort_keys=False).encode() == recipe
