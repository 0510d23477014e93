"""The one error that users are meant to read, and how others say that memory has run out."""

#: torch's words, on a CPU and on a GPU; it raises a RuntimeError
NO_MEMORY = ("can't allocate memory", "out of memory")


class UserError(ValueError):
    """The user's problem, in one sentence: what is wrong, where, and what to do.

    In Python it is the ValueError of a value that cannot work, as the plugin's ConfigError is.

    ``vaswani.cli.main`` prints it without a traceback and exits with status 1.
    """
