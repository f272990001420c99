"""The mistakes of the user."""


class UserError(Exception):
    """A mistake in the arguments or in the file: one line on standard error and the exit code 2, never a traceback."""
