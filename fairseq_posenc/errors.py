"""The one exception for mistakes a user can make, and the names of flags in it."""


class UsageError(SystemExit, ValueError):
    """A mistake in a flag, a file or a combination of them; its text is one line.

    It is a :class:`ValueError`, so Python code catches it as usual.  It is also a
    :class:`SystemExit`, so a command line that does not catch it prints the line to
    standard error and leaves with status 1 instead of showing a traceback.

    Args:
        message: one line that names the flag or file, its value, and what would work.
    """

    def __init__(self, message: str) -> None:
        super().__init__("fairseq_posenc: error: " + " ".join(str(message).split()))


def flag_of(name: str) -> str:
    """The flag that a setting is given by: ``gau_key_size`` to ``--gau-key-size``."""
    return "--" + name.replace("_", "-")
