"""Warnings of newer libraries that fairseq triggers and no user of this plugin can fix."""

import warnings

# A regular expression for the beginning of the message, and its category. All were seen with the
# pinned stacks.
_STALE = [
    (r"hydra\.experimental\.\w+\(\) is no longer experimental", UserWarning),
    (r"\s*The version_base parameter is not specified", UserWarning),
    (r"In '.*': Usage of deprecated keyword in package header", UserWarning),
    (r"\s*'config' is validated against ConfigStore schema", UserWarning),
    (r"\s*The strict flag in the compose API is deprecated", UserWarning),
    (r"Future Hydra versions will no longer change working directory", UserWarning),
    (r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning),
    (r"'pin_memory' argument is set as true but no accelerator", UserWarning),
    (r"Support for mismatched key_padding_mask and attn_mask", UserWarning),
]


def quiet() -> None:
    """Hide these known warnings, and no others, in the output of our own commands."""
    for message, category in _STALE:
        warnings.filterwarnings("ignore", message=message, category=category)
