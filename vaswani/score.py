"""Scores translations with sacreBLEU: BLEU and chrF, each with its signature.

    vaswani score RUN                                  the translations in RUN/eval
    vaswani score --hypotheses FILE --references FILE  any two files

Of a run: BLEU on detokenised text against the references as they were written (comparable between
papers), and BLEU on tokens (what fairseq-generate prints, and older papers report). A corpus that
comes as tokens has only the latter. The same numbers go to a JSON file beside the translations.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

from vaswani.corpus.text import read_lines
from vaswani.errors import UserError
from vaswani.experiment import find_run, read_yaml
from vaswani.files import atomic_write, sha256_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, or two files."""
    parser.add_argument("run", metavar="RUN", nargs="?")
    parser.add_argument("--subset", default="test", help="which translations of the run (test)")
    parser.add_argument("--hypotheses", metavar="FILE", help="translations, one per line")
    parser.add_argument("--references", metavar="FILE", help="their references, one per line")
    parser.add_argument("--tokenised", action="store_true", help="the files are tokens already")


def run(args: argparse.Namespace) -> int:
    """Print the scores and leave them beside the translations."""
    if args.run and (args.hypotheses or args.references):
        raise UserError("give a run, or --hypotheses and --references, not both")
    if args.run:
        results, path = score_run(args.run, args.subset)
    elif args.hypotheses and args.references:
        hypotheses, references = Path(args.hypotheses), Path(args.references)
        results = score_files(hypotheses, references, args.tokenised)
        path = hypotheses.with_name(hypotheses.name + ".score.json")
    else:
        raise UserError("give a run, or both --hypotheses and --references")
    with atomic_write(path) as stream:
        json.dump(results, stream, indent=1)
    for name in ("bleu", "bleu_tokenised", "chrf"):
        if name in results:
            print(f"{results[name]['text']}    {results[name]['signature']}")
    print(f"written to {path}", file=sys.stderr)
    return 0


def score_run(name: str, subset: str) -> Any:
    """The scores of a run's translations, and where to write them.

    Raises:
        UserError: nothing translated yet, or the data's text is gone.
    """
    folder = find_run(name)
    hypotheses = folder / "eval" / f"{subset}.hyp"
    tokens = folder / "eval" / f"{subset}.hyp.tok"
    if not hypotheses.is_file() or not tokens.is_file():
        raise UserError(f"{folder} has no translations of '{subset}': run 'vaswani generate' first")
    report = json.loads((folder / "eval" / f"{subset}.json").read_text(encoding="utf-8"))
    data = Path(report["data"].split(":")[0]).parent
    if not (data / "recipe.yaml").is_file():
        raise UserError(
            f"{data} was not made by 'vaswani prepare', so the references are not known: use "
            f"--hypotheses {hypotheses} --references FILE"
        )
    recipe = read_yaml(data / "recipe.yaml")
    target = f"{subset}.{recipe['target_lang']}"
    results = score_files(tokens, data / "tok" / target, tokenised=True)
    if not recipe["tokenised"]:
        detokenised = score_files(hypotheses, data / "text" / target, tokenised=False)
        results = {**results, **detokenised}
    results["translation"] = report
    return results, folder / "eval" / f"{subset}.score.json"


def score_files(hypotheses: Path, references: Path, tokenised: bool) -> Dict[str, Any]:
    """BLEU and chrF of a file against another, line by line.

    Raises:
        UserError: a file is missing or empty, or the two differ in length.
    """
    from sacrebleu.metrics import BLEU, CHRF

    said, meant = sentences(hypotheses), sentences(references)
    if len(said) != len(meant):
        raise UserError(
            f"{hypotheses} has {len(said):,} lines and {references} has {len(meant):,}: every "
            "reference needs its translation in the same line"
        )
    name = "bleu_tokenised" if tokenised else "bleu"
    results: Dict[str, Any] = {}
    # no smoothing on tokens: the figure of fairseq-generate and of multi-bleu.perl
    plain = BLEU(tokenize="none", smooth_method="none", force=True)
    metrics = {name: plain if tokenised else BLEU(), "chrf": CHRF()}
    for key, metric in metrics.items():
        score = metric.corpus_score(said, [meant])
        results[key] = {
            "score": round(score.score, 2),
            "text": ("tokenised " if key == "bleu_tokenised" else "") + str(score),
            "signature": str(metric.get_signature()),
            "hypotheses": {"file": str(hypotheses), "sha256": sha256_of(hypotheses)},
            "references": {"file": str(references), "sha256": sha256_of(references)},
            "lines": len(said),
        }
    return results


def sentences(path: Path) -> List[str]:
    """The lines of a file.

    Raises:
        UserError: it is missing, or holds nothing but blank lines.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    lines = list(read_lines(path))
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty: there is nothing to score")
    return lines
