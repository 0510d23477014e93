"""The entry point: ``vaswani VERB …``. One table, one loop; each verb is in the file of its name.

A verb's module in ``vaswani.commands`` offers ``Options``, a dataclass of
``vaswani.common.options``, and ``run(options) -> int``. It imports torch and fairseq, and what does
so, only inside ``run``, so that ``--help`` answers at once.

Exit codes: 0 done (perhaps with warnings), 1 a user error (one sentence on stderr), 2 usage,
130 interrupted, 143 terminated, 141 (silently) if the reader of the output has gone. A bug has a
traceback, and with VASWANI_TRACEBACK=1 a user error has one, too.
"""

import argparse
import contextlib
import importlib
import io
import logging
import os
import signal
import sys
import warnings
from types import ModuleType

from vaswani.common import signals
from vaswani.common.environment import DISTRIBUTION, extra_with, version
from vaswani.common.errors import FAIRSEQ, NO_MEMORY, nearest, refusal_of_fairseq
from vaswani.common.files import NO_SPACE
from vaswani.common.find import DOCS
from vaswani.common.options import check_encoding, parse

# fairseq uses it at import: here, so that the processes that a training spawns are silent as well
warnings.filterwarnings("ignore", message=r"`torch\.jit\.script\w*` is")

#: groups of verbs as --help lists them: verb → what it does
GROUPS: dict[str, dict[str, str]] = {
    "prepare text and train a model": {
        "prepare": "Tokenise parallel text, split it into subwords, write fairseq's binary data",
        "new": "Write a training configuration for prepared text",
        "plan": "Estimate the batch size, memory, time and FLOPs of a training run",
        "train": "Train a configuration, or resume an interrupted run",
        "average": "Average the last checkpoints of a run",
    },
    "translate and score": {
        "generate": "Translate a test set with the model of a run",
        "score": "Compute BLEU and chrF, with sacreBLEU's signatures",
        "pack": "Pack the model of a run into a folder that translates raw text",
        "translate": "Translate text with a packed model",
        "export": "Convert a packed model for CTranslate2, fairseq or Hugging Face",
    },
    "compare with the paper": {
        "check": "Check any PyTorch Transformer against the paper, by section",
        "attention": "Plot the attention weights of every head, as a web page and images",
        "reproduce": "Reproduce a result of the paper from start to finish",
    },
    "use the model in fairseq's own commands": {
        "plugin-dir": "Print the plugin's folder, for fairseq's --user-dir",
    },
}
#: verb → what it does; its module in ``vaswani.commands`` has its name
VERBS = {verb: what for verbs in GROUPS.values() for verb, what in verbs.items()}


#: what comes with fairseq: 'translate', 'attention' and 'check' need none of it
WITH_FAIRSEQ = (*FAIRSEQ, "yaml")
#: set in the environment to see the traceback of every error
TRACEBACK = "VASWANI_TRACEBACK"


def module_of(verb: str) -> ModuleType:
    """Return the module of a verb."""
    return importlib.import_module(f"vaswani.commands.{verb.replace('-', '_')}")


def top_parser() -> argparse.ArgumentParser:
    """Return the parser of everything before a verb's own arguments."""
    groups = []
    for title, verbs in GROUPS.items():
        lines = [f"   {verb:<12}{what}" for verb, what in verbs.items()]
        groups.append("\n".join([title, *lines]))
    parser = argparse.ArgumentParser(
        prog="vaswani",
        usage="vaswani [--help] [--version] VERB [ARGUMENTS]",
        description="Train, decode and score the Transformer of 'Attention Is All You Need'. The "
        "verbs are:",
        epilog="\n\n".join(groups)
        + f"\n\n'vaswani VERB --help' explains a verb. The documents are in {DOCS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("--help", "-h", action="help", help=argparse.SUPPRESS)
    shown = f"vaswani {version()}"
    parser.add_argument("--version", action="version", version=shown, help=argparse.SUPPRESS)
    parser.add_argument("verb", metavar="VERB", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def run_verb(argv: list[str] | None) -> int:
    """Parse one command line, run its verb, and return the exit code."""
    parser = top_parser()
    args = parser.parse_args(argv)
    if args.verb is None:
        parser.print_help()
        parser.exit()
    if args.verb not in VERBS:
        parser.error(
            f"there is no verb '{args.verb}'{nearest(args.verb, list(VERBS))}: "
            f"give one of {', '.join(VERBS)}"
        )
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it logs at import what it could use
    module = module_of(args.verb)
    verb_parser = argparse.ArgumentParser(
        prog=f"vaswani {args.verb}",
        description=(module.__doc__ or "").replace("docs/", f"{DOCS}/"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kind = module.options_for(args.rest) if hasattr(module, "options_for") else module.Options
    options = parse(verb_parser, kind, args.rest)
    check_encoding(options)
    code = int(module.run(options))
    sys.stdout.flush()  # if that fails, let it fail here
    return code


def problem_of(error: BaseException) -> str | None:
    """Return the sentence for an error that is the user's problem; None for a bug."""
    if getattr(error, "for_users", False):  # a UserError, or the plugin's PluginError
        return str(error)
    if isinstance(error, ImportError):
        if not error.name or error.name.split(".")[0] in ("vaswani", "transformer_plugin"):
            return None
        package = error.name.split(".")[0]
        if package in WITH_FAIRSEQ:
            return (
                f"the package '{package}' is missing: this needs fairseq, Python 3.10 to 3.12, "
                "and the extras 'modern' or 'official' and 'text': see Install in README (in the "
                "repository: make setup)"
            )
        extra = extra_with(package)
        wanted = f"'{DISTRIBUTION}[{extra}]'" if extra else package
        return (
            f"the package '{package}' is missing: pip install {wanted} (in the repository: make "
            "setup)"
        )
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}" if str(error) else "there is no memory left"
    if isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY):
        return f"there is not enough memory (smaller batches need less): {error}"
    if isinstance(error, OSError):
        where = error.filename or ("writing failed" if error.errno in NO_SPACE else "")
        return f"{where}: {error.strerror}" if where else str(error) or type(error).__name__
    modules = [kind.__module__.split(".")[0] for kind in type(error).__mro__]
    if type(error) is RuntimeError or {"omegaconf", "hydra"} & set(modules):
        return str(error)
    if modules[0] == "torch" and isinstance(error, RuntimeError):
        return str(error)
    refusal = refusal_of_fairseq(error)
    return f"{refusal} (in fairseq; {TRACEBACK}=1 shows where)" if refusal else None


def open_standard_streams() -> None:
    """Open each standard stream that the caller closed (``2>&-``) on the null device.

    Python has None for it, so that ``print(file=sys.stderr)`` would write to standard output; and
    the next file that is opened would get its descriptor, and with it what C libraries and child
    processes write there.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number: this one
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            stream = open(descriptor, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            setattr(sys, name, stream)


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")  # as files are
    words = sys.argv[1:] if argv is None else argv
    name = " ".join(["vaswani", *words[:1]])
    with signals.signals_as_interrupts() as received:
        try:
            return run_verb(argv)
        except BaseException as error:
            if received or isinstance(error, KeyboardInterrupt):
                terminated = signal.SIGTERM in (received or error.args)
                what = "terminated" if terminated else "interrupted"
                with contextlib.suppress(OSError):
                    print(f"\n{name}: {what}{signals.continue_hint()}.", file=sys.stderr)
                return signals.TERMINATED if terminated else signals.INTERRUPTED
            gone = isinstance(error, (BrokenPipeError, SystemExit)) and signals.output_is_gone()
            if gone or isinstance(error, BrokenPipeError):
                return signals.EXIT_SIGPIPE
            problem = problem_of(error)
            if problem is None or os.environ.get(TRACEBACK):
                raise
    print(f"{name}: {' '.join(problem.split())}", file=sys.stderr)
    signals.output_is_gone()
    return 1
