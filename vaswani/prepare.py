"""Makes data/NAME from text: {text,tok,bpe}/{train,valid,test}.LANG, codes and data-bin.

    vaswani prepare demo_en_de                       generated text
    vaswani prepare multi30k_en_de --text FOLDER     a corpus you have
    vaswani prepare --source-lang en --target-lang fr --train PREFIX --valid PREFIX
                    --test PREFIX --bpe 8000 --out data/mine        your own (PREFIX.en, PREFIX.fr)

Each stage is skipped where its result is there for the same inputs and options.
"""

import argparse
import shutil
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from vaswani.corpus import binarise, bpe, stage, text, tokenise
from vaswani.errors import UserError
from vaswani.experiment import find_config, nearest, read_yaml
from vaswani.files import atomic_write, sha256_of

RECIPE_FILE = "recipe.yaml"
#: from a file to a file, reporting each line to a progress bar
Worker = Callable[[Path, Path, Callable[[int], Any]], None]


@dataclass(frozen=True)
class Recipe:
    """How the data of an experiment is made; the fields are the keys of ``configs/data/*.yaml``."""

    source_lang: str
    target_lang: str
    #: prefixes of the files, LANG (and .gz) appended; or ``generate`` instead of the three
    train: Optional[str] = None
    valid: Optional[str] = None
    test: Optional[str] = None
    #: "phrases": the demo's generator
    generate: Optional[str] = None
    #: the text comes as tokens already
    tokenised: bool = False
    #: merges of the joint BPE (5.1)
    bpe: int = 10000

    @property
    def langs(self) -> Tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> List[str]:
        """The parts there are; a user's own text may lack a test set."""
        return [name for name in text.SPLITS if self.generate or getattr(self, name)]


def recipe_from(table: Dict[str, Any], where: str) -> Recipe:
    """A checked recipe from a YAML table or from arguments; ``where`` names it in errors.

    Raises:
        UserError: an unknown or missing key, or a value that cannot be.
    """
    known = [item.name for item in fields(Recipe)]
    for key in table:
        if key not in known:
            raise UserError(f"{where}: there is no key '{key}'{nearest(str(key), known)}")
    given = {key: value for key, value in table.items() if value is not None}
    for key in ("source_lang", "target_lang"):
        if not isinstance(given.get(key), str):
            raise UserError(f"{where}: '{key}' is missing (a code such as 'en'; quote 'no')")
    if given["source_lang"] == given["target_lang"]:
        raise UserError(f"{where}: source and target are both '{given['source_lang']}'")
    if "generate" not in given:
        for key in ("train", "valid"):
            if not isinstance(given.get(key), str):
                raise UserError(f"{where}: '{key}' is missing: the prefix of its two files")
    merges = given.get("bpe", 10000)
    if not isinstance(merges, int) or isinstance(merges, bool) or merges < 1:
        raise UserError(f"{where}: bpe is {merges!r}, but must be a number of merges, at least 1")
    return Recipe(**given)


def find_recipe(name: str) -> Tuple[Recipe, Path]:
    """The recipe an experiment or recipe name stands for, and the folder it makes.

    An experiment says ``task.data: data/NAME/data-bin``; its recipe is ``configs/data/NAME.yaml``.
    """
    try:
        path = find_config(name)
    except UserError:
        path = find_config(name, "data")
    table = read_yaml(path)
    folder = Path("data") / path.stem
    if isinstance(table.get("task"), dict):
        folder = Path(str(table["task"].get("data"))).parent
        beside = path.parent / "data" / f"{folder.name}.yaml"
        path = beside if beside.is_file() else find_config(folder.name, "data")
        table = read_yaml(path)
    return recipe_from(table, str(path)), folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A name, or the six options of one's own text."""
    parser.add_argument("name", nargs="?", help="an experiment or a recipe of configs/data")
    parser.add_argument("--text", metavar="FOLDER", help="where the recipe's text files lie")
    parser.add_argument("--out", metavar="DIR", help="where to put the result (data/NAME)")
    parser.add_argument("--source-lang", metavar="LANG")
    parser.add_argument("--target-lang", metavar="LANG")
    for split in text.SPLITS:
        parser.add_argument(f"--{split}", metavar="PREFIX", help=f"your {split} text: PREFIX.LANG")
    parser.add_argument("--tokenised", action="store_true", help="your text is tokens already")
    parser.add_argument("--bpe", type=int, metavar="N", help="merges of the joint BPE")


def run(args: argparse.Namespace) -> int:
    """Prepare what the arguments name."""
    own = {item.name: getattr(args, item.name, None) for item in fields(Recipe)}
    own["tokenised"] = args.tokenised or None
    if args.name is None:
        if not args.out:
            raise UserError("give the name of a recipe, or your own text with --out DIR")
        recipe, folder = recipe_from(own, "the arguments"), Path(args.out)
    else:
        recipe, folder = find_recipe(args.name)
        changed = {key: value for key, value in own.items() if value is not None}
        recipe = recipe_from({**asdict(recipe), **changed}, f"recipe {args.name} with options")
        folder = Path(args.out) if args.out else folder
    prepare(recipe, folder, Path(args.text) if args.text else None)
    return 0


def prepare(recipe: Recipe, folder: Path, text_folder: Optional[Path]) -> None:
    """Run the stages text → tok → codes → bpe → data-bin, each only where needed.

    Raises:
        UserError: text that is missing, damaged or not parallel.
    """
    if text_folder is not None and not text_folder.is_dir():
        raise UserError(f"there is no folder {text_folder} to take the text from")
    start = time.monotonic()
    if recipe.generate:
        sources, key = {}, stage.key_of([recipe.generate, recipe.langs, generator_fingerprint()])
    else:
        sources = source_files(recipe, text_folder)
        hashes = {s: [sha256_of(path) for path in pair] for s, pair in sources.items()}
        key = stage.key_of([recipe.langs, hashes])
    stages: List[Tuple[str, Any, Callable[[Path], None]]] = [
        ("text", None, lambda out: make_text(recipe, sources, out)),
        ("tok", recipe.tokenised, lambda out: make_tokens(recipe, folder / "text", out)),
        ("codes", recipe.bpe, lambda out: make_codes(recipe, folder / "tok", out)),
        ("bpe", None, lambda out: make_bpe(recipe, folder, out)),
        ("data-bin", None, lambda out: make_data_bin(recipe, folder / "bpe", out)),
    ]
    ran = False
    for name, options, make in stages:
        key = stage.key_of([key, name, options])
        if stage.run_stage(folder / name, key, make):
            ran = True
            print(f"{folder / name}: made ({time.monotonic() - start:.0f} s)", file=sys.stderr)
    with atomic_write(folder / RECIPE_FILE) as stream:
        import yaml

        yaml.safe_dump(asdict(recipe), stream, sort_keys=False)
    if not ran:
        print(f"{folder}: already prepared from the same text and options", file=sys.stderr)


def source_files(recipe: Recipe, folder: Optional[Path]) -> Dict[str, Tuple[Path, Path]]:
    """The two files of each split."""
    base = folder or Path()
    found = {}
    for split in recipe.splits:
        prefix = base / str(getattr(recipe, split))
        try:
            source, target = (text.find_text(prefix, lang) for lang in recipe.langs)
        except UserError as error:
            hint = "" if folder or prefix.parent != Path() else "; name their folder with --text"
            raise UserError(f"{error}{hint}") from None
        found[split] = (source, target)
    return found


def generator_fingerprint() -> List[str]:
    """What the generated text depends on: the generator's sources and num2words' version."""
    import importlib.metadata

    from vaswani.corpus import lexicon, numerals, phrases, quantities, split, templates

    modules = (lexicon, numerals, phrases, quantities, split, templates)
    sources = [sha256_of(str(module.__file__)) for module in modules]
    return [*sources, importlib.metadata.version("num2words")]


def make_text(recipe: Recipe, sources: Dict[str, Tuple[Path, Path]], out: Path) -> None:
    """Stage 1: the sentences as they are written, safe and parallel."""
    out.mkdir()
    if recipe.generate:
        if recipe.generate != "phrases":
            raise UserError(f"there is no generator '{recipe.generate}'; known: phrases")
        from vaswani.corpus import phrases

        phrases.write("-".join(recipe.langs), out)
        return
    for split, pair in sources.items():
        source, target = (out / f"{split}.{lang}" for lang in recipe.langs)
        dropped = text.copy_pair(pair, (source, target), drop_blank=split == "train")
        if dropped:
            print(f"{pair[0]}: {dropped:,} pairs with an empty side left out", file=sys.stderr)


def make_tokens(recipe: Recipe, source: Path, out: Path) -> None:
    """Stage 2: Moses tokens, or a copy where the text is tokens already."""
    if recipe.tokenised:
        shutil.copytree(source, out)
        return

    def worker(lang: str) -> Worker:
        return lambda source, target, tick: tokenise.tokenise_file(source, target, lang, tick)

    each_file(recipe, source, out, "tokenise", worker)


def make_codes(recipe: Recipe, tokens: Path, out: Path) -> None:
    """Stage 3: the joint BPE, learned on the training part of both languages."""
    bpe.learn([tokens / f"train.{lang}" for lang in recipe.langs], out, recipe.bpe)


def make_bpe(recipe: Recipe, folder: Path, out: Path) -> None:
    """Stage 4: the BPE applied."""

    def worker(lang: str) -> Worker:
        return lambda source, target, tick: bpe.apply(source, target, folder / "codes", tick)

    each_file(recipe, folder / "tok", out, "apply BPE", worker)


def make_data_bin(recipe: Recipe, source: Path, out: Path) -> None:
    """Stage 5: fairseq's binary form."""
    binarise.binarise(source, out, recipe.langs, recipe.splits)


def each_file(
    recipe: Recipe, source: Path, out: Path, title: str, worker: Callable[[str], Worker]
) -> None:
    """Run ``worker(lang)`` over every split of every language, under one progress bar."""
    from tqdm import tqdm

    out.mkdir()
    names = [(f"{split}.{lang}", lang) for split in recipe.splits for lang in recipe.langs]
    total = sum(text.count_lines(source / name) for name, _ in names)
    with tqdm(total=total, desc=title, unit=" lines", leave=False, disable=None) as bar:
        for name, lang in names:
            worker(lang)(source / name, out / name, bar.update)
            text.check_same_count(source / name, out / name)
