"""Where configurations and recipes are found. This imports nothing that takes long.

A configuration is ``configs/NAME.yaml`` (fairseq's own sections, so ``fairseq-hydra-train`` reads
it too); a recipe for its data is ``configs/data/NAME.yaml``, since several configurations may share
one. Names may be written with - or _.
"""

from pathlib import Path

from vaswani.common.errors import UserError, nearest

_HERE = Path(__file__).resolve().parents[1]
#: configurations, documents and text: inside an installed package, beside it in a checkout
SHIPPED = _HERE if (_HERE / "configs").is_dir() else _HERE.parent
CONFIGS, DOCS = SHIPPED / "configs", SHIPPED / "docs"
#: in recipes, ``examples/demo_text/train`` is found from any folder
DEMO_TEXT = SHIPPED / "examples" / "demo_text"

#: in configs/, but changes to configurations
TABLES = ("table3",)


def file_stem(name: str) -> str:
    """Return the file's stem for an experiment: ``wmt14-en-de-base`` gives ``wmt14_en_de_base``."""
    return name.replace("-", "_")


def config_folders(kind: str = "") -> list[Path]:
    """Return the folders searched, in order: ./configs, then the repository's; or ``kind`` below
    them.
    """
    return [folder / kind for folder in (Path("configs"), CONFIGS)]


def configuration_paths(stem: str, kind: str = "") -> list[Path]:
    """Return where a name's file may be: in ``config_folders``; for a configuration, also here."""
    folders = [*config_folders(kind), *([] if kind else [Path()])]
    return [folder / f"{stem}.yaml" for folder in folders]


def find_config(name: str, kind: str = "") -> Path:
    """Return the YAML file of a configuration (``kind`` empty) or of a data recipe (``kind``
    "data").

    ``name`` is a path, or a name in one of ``config_folders``; for a configuration, also NAME.yaml
    in the current folder.

    Raises:
        UserError: there is no such file; suggests the nearest name.
    """
    path = Path(name)
    if path.is_file():
        return path
    stem = file_stem(
        path.name[: -len(path.suffix)] if path.suffix in (".yaml", ".yml") else path.name
    )
    names: list[str] = []
    if path.parent == Path("."):
        for path in configuration_paths(stem, kind):
            if path.is_file():
                return path
        names = known_configs(kind)
    what = {"": "experiment", "data": "data recipe"}.get(kind, "manifest of archives")
    offer = f" (known: {', '.join(names)})" if names else ""
    raise UserError(f"there is no {what} '{name}'{nearest(stem, names)}{offer}")


def known_configs(kind: str = "") -> list[str]:
    """Return the names of the configurations, or of the data recipes, where they are looked for."""
    paths = [path for folder in config_folders(kind) for path in sorted(folder.glob("*.yaml"))]
    here = (
        [] if kind else [path for path in sorted(Path().glob("*.yaml")) if is_configuration(path)]
    )
    names = [path.stem for path in [*here, *paths]]
    return [name for name in dict.fromkeys(names) if kind or name not in TABLES]


def is_configuration(path: Path) -> bool:
    """Return whether a YAML file looks like a configuration: others may be in the current
    folder.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return {"task:", "model:"} <= {line.rstrip() for line in text.splitlines()}


def first_data_bin(data: object) -> Path:
    """Return the (first) data-bin that ``task.data`` names: fairseq takes several, separated by
    colons.
    """
    return Path(str(data).split(":")[0])
