"""The planted faults, by kind."""

from . import attention, decoding, embeddings, norms, padding, sharing, training, training_loss
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
}
FAULTS = [fault for faults in KINDS.values() for fault in faults]
