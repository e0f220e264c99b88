"""The exception for user errors, and the spelling of flags in its messages.

A function of this package that *refuses* something raises :class:`UsageError` and names what it is,
the value, and what would work.
"""


class UsageError(SystemExit, ValueError):
    """An error in a flag, a file or a combination of them, reported on one line.

    It is a :class:`ValueError`, so Python code catches it as usual.  It is also a
    :class:`SystemExit`, so a command line that does not catch it prints the line to
    standard error and exits with status 1 instead of showing a traceback.
    """

    def __init__(self, message: str) -> None:
        self.message = " ".join(str(message).split())  # the line without its prefix
        super().__init__("fairseq_posenc: error: " + self.message)


def flag_of(name: str) -> str:
    """The command-line flag of a setting.

    >>> flag_of("gau_key_size")
    '--gau-key-size'
    """
    return "--" + name.replace("_", "-")
