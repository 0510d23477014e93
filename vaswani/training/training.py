"""Training a run: whether there is anything to train, each process's part, and what is said of it.

``vaswani train`` calls :func:`train`, in each process that the user or a launcher starts.
"""

import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig
from torch.multiprocessing.spawn import ProcessException

from transformer_plugin.compat.divergence import DivergedError
from vaswani.common import signals
from vaswani.common.errors import UserError, refusal_of_fairseq
from vaswani.common.files import atomic_write, locked
from vaswani.common.find import find_config
from vaswani.configuration.fairseq_config import (
    complete,
    fairseq_form,
    read_configuration,
    writable,
)
from vaswani.configuration.plugin import fairseq_logs, load_user_dir
from vaswani.data.read_data_bin import data_fingerprint, data_options
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.run import LAST, Fingerprint, Run
from vaswani.folders.search_options import check_search
from vaswani.training import launch, phases, run_record
from vaswani.training.trainer import Stopped, fairseq_with
from vaswani.training.training_progress import TrainingProgress
from vaswani_transformer.fast.malloc import keep_freed_memory

#: seconds for which a job that SLURM has started again waits for the lock of a machine that died
AFTER_RESTART = 300.0
#: printed when a stop is requested, which may come in the middle of a long update
STOPPING = "stopping after this update; Ctrl-C again: at once, without saving"


class Decision(NamedTuple):
    """What rank 0 decides for all: whether to train, and from which checkpoint, if any."""

    trains: bool
    resumes: bool
    restore_file: str = LAST
    #: ``stop_key`` of the configuration
    stop: str = ""
    #: of this start, file → text, written when its first update begins
    records: dict[Path, str] = {}  # noqa: RUF012
    #: the resets that are asked for, each with the text that it was asked for with
    resets: dict[str, str] = {}  # noqa: RUF012
    #: those of them that an earlier start has done
    done: tuple[str, ...] = ()


def train(
    config: str | Path, text: PreparedText | None = None, overrides: Sequence[str] = ()
) -> Run:
    """Train a run, or continue it, after all checks that are possible beforehand.

    Args:
        config: the configuration: a name in ``configs/``, or a YAML file
        text: its data-bin is trained on (default: ``task.data`` of the configuration)
        overrides: ``section.key=value`` changes the configuration; ``run=NAME`` sets the folder

    Raises:
        UserError, ConfigError: an unknown name, a value that cannot work, or unusable data.
        CheckpointError: a checkpoint to start from cannot be read.
        Stopped: Ctrl-C or SIGTERM; what was trained is saved.
    """
    path = find_config(str(config))
    name, changes = run_record.split_run(overrides)
    configuration = read_configuration(path, changes)
    check_search(configuration)
    launch.check_machine(configuration)
    for key in ("finetune_from_model", "continue_once"):
        start = configuration.checkpoint.get(key)
        if start and not Path(start).is_file():
            raise UserError(
                f"checkpoint.{key}: there is no checkpoint {start}: correct the path, or leave it "
                "out"
            )
    run = run_record.run_of(configuration, name, path)
    additions, remarks = data_options(configuration, text.data_bin.folder if text else None)
    additions["checkpoint"] = {"save_dir": str(run.checkpoints)}
    configuration = complete(configuration, additions)
    data = data_fingerprint(configuration)
    keep_freed_memory()
    place = launch.find_launch(configuration, os.environ, launch.gpus_to_use(configuration))
    if place.rank == 0:
        for remark in remarks:
            print(f"warning: {remark}", file=sys.stderr)
        train_or_skip(configuration, data, run, place)
    else:
        start_rank(configuration, data, run, place, None)
    return run


def train_or_skip(config: DictConfig, data: Fingerprint, run: Run, place: launch.Launch) -> None:
    """Decide, in rank 0, whether to train, and train."""
    run_record.refuse_foreign_folder(run)
    patience = AFTER_RESTART if os.environ.get("SLURM_RESTART_COUNT") else 0.0
    with locked(run.lock, f"{run} is being trained", patience=patience):
        phases.return_to_earlier_phase(run)
        signals.set_resumable(lambda: run_record.has_checkpoints(run))
        for change in run_record.changed_data(config, data, run):
            print(f"warning: {change}", file=sys.stderr)
        ending = run.ending()
        stop = run_record.stop_key(config)
        resumes = run_record.has_checkpoints(run)
        restore_file = checkpoint_to_start_from(config, run, resumes)
        resets = run_record.requested_resets(config, data)
        done = run_record.finished_resets(resets, run) if resumes else ()
        begins_phase = "reset_optimizer" in resets and "reset_optimizer" not in done
        if resumes and ending and ending.stop == stop and not begins_phase:
            if place.kind in (launch.TORCHRUN, launch.BY_HAND):  # the others wait for this
                start_rank(config, data, run, place, Decision(False, resumes))
            print_end(config, run, f"already trained, {ending.num_updates:,} updates")
            return
        run_record.remove_half_written(run)
        records = run_record.records_of(config, data, run, place)
        for name in done:
            print(
                f"checkpoint.{name} was already applied to this run: not applied again",
                file=sys.stderr,
            )
        decision = Decision(True, resumes, restore_file, stop, records, resets, done)
        start_rank(config, data, run, place, decision)
    print_end(config, run, "finished")


def print_end(config: DictConfig, run: Run, what: str) -> None:
    """Print why a training ended, the model's validation loss, and the next command."""
    ending = run.ending()
    end = ""
    if ending and ending.reason:
        updates = ending.num_updates
        most = config.optimization.max_update
        of = f" of {most:,}" if updates < most else ""
        stopped = f"stopped by {ending.reason} at update {updates:,}{of}"
        reached = f"reached max_update ({updates:,})"
        end = f": {reached if ending.reason == 'max_update' else stopped}"
    if ending and ending.perplexity is not None:
        end += f", validation perplexity {ending.perplexity:,.2f}"
    next_step = "no checkpoint was saved"
    if run_record.has_checkpoints(run):
        next_step = f"next: {shlex.join(['vaswani', 'average', str(run)])}"
    print(f"{run}: {what}{end}; {next_step}", file=sys.stderr)


def checkpoint_to_start_from(config: DictConfig, run: Run, resumes: bool) -> str:
    """Return the run's own last checkpoint, or ``checkpoint.restore_file`` for its start.

    Repeating the command continues from what the run has trained since.

    Raises:
        UserError: the run would start over from another checkpoint, and replace its own.
    """
    requested = str(config.checkpoint.restore_file)
    if requested == LAST or not resumes:
        return requested
    before = run.configuration().get("checkpoint", {})
    if before.get("restore_file") != requested:
        raise UserError(
            f"{run} has checkpoints of its own, which a start from {requested} would replace: "
            "leave out checkpoint.restore_file to continue from them, or give another folder with "
            "run=NAME"
        )
    return LAST


def start_rank(
    config: DictConfig,
    data: Fingerprint,
    run: Run,
    place: launch.Launch,
    decision: Decision | None,
) -> None:
    """Start this rank of fairseq's training; ``decision`` is None except for rank 0."""
    additions: dict[str, dict[str, object]] = {
        "common": {"log_format": "json"},
        "distributed_training": place.section,
    }
    process_config = writable(config, additions)
    if place.world_size == 1:
        train_process(process_config, data, run, decision)
        return
    try:
        distributed_utils.call_main(
            process_config, train_process, data=data, run=run, decision=decision
        )
    except ProcessException as failure:
        raise launch.error_of_process(failure) from None
    finally:
        if place.kind == launch.PER_GPU:  # before the lock is released
            launch.end_processes()


def train_process(
    config: DictConfig, data: Fingerprint, run: Run, decision: Decision | None
) -> None:
    """Train in one process, with the others if there are any; rank 0 keeps the logs.

    Raises:
        UserError: the training diverged.
        ConfigError: a machine has different data or a different folder.
        Stopped: Ctrl-C or SIGTERM; what was trained is saved.
    """
    signals.end_with_parent()  # if fairseq spawned this process, which then knows nothing yet
    load_user_dir(config.common.user_dir)
    rank = config.distributed_training.distributed_rank or 0
    decision = launch.all_gather(decision)[0]
    assert decision is not None
    if not decision.trains:
        return
    sees_run = decision.resumes == run_record.has_checkpoints(run)
    launch.check_agreement(rank, sees_run, data.sha256, run.folder)
    start: dict[str, object] = {"restore_file": decision.restore_file}
    start.update(dict.fromkeys(decision.done, False))
    if config.checkpoint.restore_file != decision.restore_file:
        start.update(dict.fromkeys(run_record.RESETS, False))  # the run's own is taken whole
    form = fairseq_form(config, {"checkpoint": start})
    if rank:
        run.folder.mkdir(parents=True, exist_ok=True)
        with signals.StopRequest() as request:
            run_fairseq(form, run.log(rank), request, None, decision.resets)
        return
    records = decision.records

    def first_update(updates: int) -> str:
        for path, text in records.items():  # nothing is refused any more
            with atomic_write(path) as stream:
                stream.write(text)
        begins = f"continuing at update {updates:,}" if updates else "training"
        # get() of official fairseq's omegaconf refuses a key that another model does not have
        is_compiled = "compile" in config.model and config.model.compile
        compiles = "; the first update compiles the model" if is_compiled else ""
        return f"{begins} {launch.devices_in_words(config)}; log: {run.log()}{compiles}"

    progress = TrainingProgress(run, config.optimization.max_update, first_update)
    progress.say("reading the validation text, and building the model")
    with signals.StopRequest(STOPPING) as request:
        try:
            run_fairseq(form, run.log(), request, progress, decision.resets)
        except Stopped as stopped:
            if stopped.saved:
                print(f"saved update {stopped.updates:,} as {stopped.saved}", file=sys.stderr)
            raise
    run_record.finish(run, progress.ending(decision.stop))


def run_fairseq(
    config: DictConfig,
    log: Path,
    request: signals.StopRequest,
    progress: TrainingProgress | None,
    resets: dict[str, str],
) -> None:
    """Run fairseq's own training loop.

    Args:
        config: in the form of ``fairseq_form``; fairseq changes it
        log: gets all that any library logs; of other ranks than 0, the warnings
        request: becomes the process's when the first update begins
        progress: None except for rank 0
        resets: those that its checkpoints are to say were done

    Raises:
        UserError: the training diverged, or fairseq refuses something.
        Stopped: Ctrl-C or SIGTERM; what was trained is saved.
    """
    file = logging.FileHandler(log, encoding="utf-8", delay=True)
    file.setLevel(logging.INFO if progress else logging.WARNING)
    file.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    root = logging.getLogger()
    before, level = root.handlers, root.level
    root.handlers = [file, *([progress] if progress else [])]
    root.level = logging.INFO
    fairseq_logs(logging.INFO)
    logging.captureWarnings(True)
    try:
        # only now: importing it sets up logging to the terminal unless handlers already exist
        from fairseq_cli.train import main

        with fairseq_with(request, progress, resets):
            main(config)
    except DivergedError as error:
        logging.getLogger(__name__).exception("the training diverged")
        raise UserError(
            f"{error.what}: lower the learning rate (optimization.lr, lr_scheduler.lr_factor) or "
            "lengthen the warm-up. Run the command again to continue from the last good "
            "checkpoint, or add run=NAME to start over"
        ) from None
    except Exception as error:
        if not getattr(error, "for_users", False):
            logging.getLogger(__name__).exception("the training failed")
        refusal = refusal_of_fairseq(error)
        if not refusal:
            raise
        raise UserError(f"{refusal} (in fairseq; {log} shows where)") from error
    finally:
        logging.captureWarnings(False)
        for handler in root.handlers:
            handler.close()
        root.handlers = before
        root.level = level
        fairseq_logs(logging.WARNING)
