"""What can go wrong, in one line that names the thing, its value and the way out."""


class MixfedError(ValueError):
    """Base of all errors that the caller can mend."""


class DataError(MixfedError):
    """The table cannot be used as it is."""


class ColumnError(DataError):
    """A column has values that cannot be used."""

    def __init__(self, message: str, column: str = "") -> None:  # a default, so that it can be pickled
        super().__init__(message)
        self.column = column


class NotUtf8Error(DataError):
    """The text of a table is not UTF-8: it may be Latin-1."""


class SettingsError(MixfedError):
    """A setting is unknown, out of range or does not fit the data."""


class PoolError(MixfedError):
    """The clients are out of reach, which may pass: the same run can go on later."""
