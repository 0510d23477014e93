"""The planted faults, by kind."""

from . import (
    attention,
    decoding,
    embeddings,
    norms,
    padding,
    public_models,
    public_training,
    sharing,
    subtle_models,
    subtle_searches,
    subtle_training,
    training,
    training_loss,
    unseen,
)
from .fault import Fault

KINDS: dict[str, list[Fault]] = {
    "padding": padding.FAULTS,
    "training loss": training_loss.FAULTS,
    "attention": attention.FAULTS,
    "decoding": decoding.FAULTS,
    "norms": norms.FAULTS,
    "sharing": sharing.FAULTS,
    "training": training.FAULTS,
    "embeddings": embeddings.FAULTS,
    "public models": public_models.FAULTS,
    "public training": public_training.FAULTS,
    "subtle models": subtle_models.FAULTS,
    "subtle training": subtle_training.FAULTS,
    "subtle searches": subtle_searches.FAULTS,
    "unseen": unseen.FAULTS,
}
FAULTS = [fault for faults in KINDS.values() for fault in faults]
