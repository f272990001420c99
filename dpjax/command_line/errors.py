"""Errors that are reported to the user without a traceback."""


class UserError(Exception):
    """A mistake in the arguments or the file.

    It is printed as one line on standard error, with exit code 2.
    """
