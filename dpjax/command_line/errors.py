"""What a user can mend: it ends in one line on standard error and the exit code 2, never in a traceback."""


class UserError(Exception):
    """A mistake in the arguments or in the file, with a message that names it and, where there is one, the fix."""
