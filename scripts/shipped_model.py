"""Packs a trained run into models/, as float16, and writes what its card says of it.

    python scripts/shipped_model.py demo_en_de      `make demo-model`: trains it first if need be
    python scripts/shipped_model.py tatoeba_en_de   of the run that
                                                    benchmarks/results/nvidia-h100_2026-11-27_tatoeba.md
                                                    describes, scored as scripts/tatoeba.sh does

Prints how many translations of the test set differ from those in float32; the demo's must not.
The text of the card is scripts/cards/NAME.md. Paths are relative to the repository's root.
"""

import subprocess
import sys
from pathlib import Path

from vaswani import Translator, cli
from vaswani.common.files import read_json, sha256_of
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.model_folder import CARD, SUMS

HERE = Path(__file__).parent
SENTENCE = "The meeting is on the 3rd of March 1987."
LICENCES = {"demo_en_de": "mit", "tatoeba_en_de": "cc-by-2.0"}


def main() -> int:
    """Pack the model, compare it, and write its card; for the demo, also its attention page."""
    (name,) = sys.argv[1:]
    model, packed = Path("models") / name, Path("runs") / name / "model"
    if name == "demo_en_de":
        subprocess.run([str(HERE / "demo.sh"), "en-de"], check=True)
    run("pack", name, "--half", "--out", str(model))
    lines = Path(f"data/{name}/text/test.en").read_text(encoding="utf-8").splitlines()
    both = zip(translations(packed, lines), translations(model, lines), strict=True)
    changed = sum(before != after for before, after in both)
    print(f"{changed} of {len(lines)} translations changed by storing float16", file=sys.stderr)
    if changed and name == "demo_en_de":
        print(f"{model} is not the demo's model any more: remove it", file=sys.stderr)
        return 1
    describe(name, model, changed, len(lines))
    if name == "demo_en_de":
        run("attention", str(model), SENTENCE, "--no-pictures", "--out", f"{model}_attention")
    return 0


def run(*arguments: str) -> None:
    """Run a command of ours; exit with its code if it fails, since it has printed why."""
    code = cli.main(list(arguments))
    if code:
        raise SystemExit(code)


def translations(model: Path, lines: list[str]) -> list[str]:
    """Return a model's translations of some lines."""
    return [translation.text for translation in Translator.from_pretrained(model).translate(lines)]


def describe(name: str, model: Path, changed: int, lines: int) -> None:
    """Put scripts/cards/NAME.md into the card of 'vaswani pack', whose hash changes."""
    card, sums = model / CARD, model / SUMS
    text = card.read_text(encoding="utf-8")
    licence = f"license: {LICENCES[name]}\n"
    if licence in text:
        return
    source = Path("runs") / name
    environment = read_json(source / "env.json")
    config = read_yaml(source / "config.yaml")
    scores = {
        path.name.removesuffix(".score.json"): read_json(path)
        for path in (source / "eval").glob("*.score.json")
    }
    figures = {}
    for subset, report in scores.items():
        for measure in ("bleu", "chrf"):
            figures[f"{subset}_{measure}"] = report[measure]["score"]
    template = (HERE / "cards" / f"{name}.md").read_text(encoding="utf-8")
    about = template.format(
        sentence=SENTENCE,
        words=len((model / "dict.en.txt").read_text(encoding="utf-8").splitlines()),
        commit=environment["commit"],
        seed=config["common"]["seed"],
        updates=read_json(source / "finished.json")["num_updates"],
        minutes=round(read_json(source / "finished.json")["seconds"] / 60),
        cpu=environment["cpu"],
        changed=changed,
        lines=lines,
        **figures,
        **{part: environment["versions"][part] for part in ("python", "torch")},
    )
    old = sha256_of(card)
    text = text.replace("library_name:", licence + "library_name:", 1)
    card.write_text(text.replace("## Use\n", about + "## Use\n", 1), encoding="utf-8")
    listed = sums.read_text(encoding="utf-8")
    sums.write_text(listed.replace(old, sha256_of(card)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
