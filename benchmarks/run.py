"""Measures our model and its peers in one run, and writes a record.

    python -m benchmarks.run                       train, decode, scaling, loss, pieces, host
    python -m benchmarks.run train --device cuda
    python -m benchmarks.run decode --full         1,000 sentences; for train, the big model too

It writes RESULTS/HARDWARE_DATE_NAMES.json and .md (and .png). No test asserts any of these figures,
as they depend on the machine. If the machine is also busy with other things, trust only the ratios.
"""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import decode, host, loss, pieces, scaling, train
from benchmarks.machine import precisions
from benchmarks.table import markdown
from vaswani.common.environment import environment, hardware_name, machine
from vaswani.common.files import atomic_write

NAMES = ("train", "decode", "scaling", "loss", "pieces", "host")
TITLES = {
    "train": "Training",
    "decode": "Decoding, beam 4",
    "scaling": "Cost of one forward and backward pass, fp32",
    "loss": "Output projection and loss alone",
    "pieces": "Time with one of the quick forms changed",
    "host": "Host time",
}
RESULTS = Path(__file__).parent / "results"
MULTI30K = Path("data/multi30k_en_de/data-bin")


def parser() -> argparse.ArgumentParser:
    """Return the parser: what is measured, on which device, and on what data."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "names", metavar="NAME", nargs="*", help=f"of {', '.join(NAMES)} (default: all)"
    )
    options.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)"
    )
    options.add_argument("--full", action="store_true", help="more sizes, more sentences, sweeps")
    options.add_argument(
        "--size",
        metavar="SIZE",
        action="append",
        choices=tuple(train.WORKLOADS),
        help="to train; may be repeated (default: small and base, with --full all)",
    )
    options.add_argument(
        "--piece",
        metavar="CHANGE",
        action="append",
        choices=pieces.PIECES,
        help="of pieces, to measure; may be repeated (default: all)",
    )
    options.add_argument(
        "--rounds", metavar="N", type=int, default=8, help="of pieces (default: %(default)s)"
    )
    options.add_argument(
        "--data", metavar="DATA-BIN", help="(default: Multi30k's if prepared, else the demo's)"
    )
    options.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="of fairseq's transformer on that data (default: one trained for this, once)",
    )
    options.add_argument(
        "--threads",
        metavar="N",
        type=int,
        default=physical_cores(),
        help="of each process (default: the physical cores, %(default)s)",
    )
    options.add_argument(
        "--out", metavar="DIR", default=str(RESULTS), help="(default: benchmarks/results)"
    )
    return options


def physical_cores() -> int:
    """Count the physical cores: hardware threads of one core share its arithmetic units."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        import os

        return os.cpu_count() or 1
    pairs = re.findall(r"physical id\s*:\s*(\d+).*?core id\s*:\s*(\d+)", text, re.DOTALL)
    return len(set(pairs)) or text.count("processor\t") or 1


def data_to_use(requested: str) -> str:
    """Return the data-bin: as requested, else Multi30k's if prepared, else the demo's."""
    if requested:
        return requested
    return str(MULTI30K) if MULTI30K.is_dir() else demo_data()


def demo_data() -> str:
    """Return the demo's data-bin, and prepare it if necessary."""
    from vaswani import cli

    if cli.main(["prepare", "demo_en_de"]):
        raise SystemExit(1)
    return "data/demo_en_de/data-bin"


def run_benchmark(name: str, args: argparse.Namespace, data: str) -> dict[str, Any]:
    """Run one benchmark, and return its figures."""
    if name == "train":
        return train.run(args.device, args.full, data, args.threads, args.size or ())
    if name == "decode":
        folder = Path("runs") / "benchmark" / Path(data).parent.name
        checkpoint = args.checkpoint or decode.train_checkpoint(
            folder, data, args.device, args.threads
        )
        return decode.run(args.device, args.full, data, args.threads, checkpoint)
    if name == "scaling":
        return scaling.run(args.device, args.full, args.threads)
    if name == "pieces":
        return pieces.run(args.device, data, args.rounds, args.piece or pieces.PIECES)
    if name == "host":
        return host.run()
    return loss.run(args.device, args.full)


def record_name(facts: dict[str, Any], names: Sequence[str]) -> str:
    """Return ``nvidia-h200_2026-11-21_train``: hardware, date, and what was measured if not all."""
    parts = [hardware_name(facts), facts["time"][:10]]
    if len(names) < len(NAMES):
        parts += names
    return "_".join(parts)


def report(facts: dict[str, Any], results: dict[str, Any], name: str) -> str:
    """Return the record as Markdown."""
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    lines = [
        f"# {', '.join(results)} on {facts['cpu'] if facts['device'] == 'cpu' else facts['gpus']}",
        "",
        f"`{facts['command']}`, {facts['time']}, commit `{facts['commit']}`,",
        f"{facts['cores']} processors, {facts['threads_used']} threads each; {versions}.",
        f"Data: {facts['data']}. Medians (least–most); ratios are to fairseq, round by round.",
    ]
    if "bf16" not in facts["precisions"]:
        lines += ["Without systems in bf16: `--precision bf16` computes in fp32 here."]
    for key, result in results.items():
        lines += ["", f"## {TITLES[key]}", "", markdown(result["rows"])]
        if key == "scaling":
            lines += ["", f"![cost]({name}.png)"]
        if "peak_flops" in result:
            peaks = ", ".join(f"{p} {f / 1e9:,.0f}" for p, f in result["peak_flops"].items())
            lines += ["", f"Best square matrix product, GFLOP/s: {peaks}."]
        for note in result.get("notes", []):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Measure, and write the record after each benchmark, so that a later failure loses none."""
    args = parser().parse_args(argv)
    names: list[str] = args.names or list(NAMES)
    for name in names:
        if name not in NAMES:
            print(f"there is no benchmark '{name}'; known: {', '.join(NAMES)}", file=sys.stderr)
            return 2
    if args.device == "cuda" and not environment()["gpus"]:
        print("--device cuda: torch finds no GPU here", file=sys.stderr)
        return 2
    Path(args.out).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    data = "none" if names == ["host"] else data_to_use(args.data)
    facts = machine(args.device)
    facts.update(data=data, threads_used=args.threads, precisions=precisions(args.device))
    facts["command"] = f"python -m benchmarks.run {shlex.join(argv)}"
    name = record_name(facts, names)
    results: dict[str, Any] = {}
    for key in names:
        results[key] = run_benchmark(key, args, data)
        if key == "scaling":
            scaling.picture(results[key]["rows"], str(Path(args.out) / f"{name}.png"))
        facts["seconds"] = round(time.monotonic() - started)
        with atomic_write(Path(args.out) / f"{name}.json") as stream:
            json.dump({"machine": facts, "results": results}, stream, indent=1)
        with atomic_write(Path(args.out) / f"{name}.md") as stream:
            stream.write(report(facts, results, name))
        print(f"\n## {TITLES[key]}\n\n{markdown(results[key]['rows'])}", flush=True)
    print(f"written to {Path(args.out) / name}.md and .json", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
