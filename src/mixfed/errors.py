"""What can go wrong, in one line that names the thing, its value and the way out."""


class MixfedError(ValueError):
    """Base of all errors that the caller can mend."""


class DataError(MixfedError):
    """The table cannot be used as it is."""


class SettingsError(MixfedError):
    """A setting is unknown, out of range or does not fit the data."""


class PoolError(MixfedError):
    """The clients are out of reach, which may pass: the same run can go on later."""
