"""The one error a user is meant to read."""


class UserError(Exception):
    """The user's problem, in one sentence: what is wrong, where, and what to do.

    ``vaswani.cli.main`` prints it without a traceback and exits with status 1.
    """
