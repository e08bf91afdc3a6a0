"""The criterion by which the number of kinds is chosen: less is better, as in R and statsmodels."""

import math


def bic(likelihood: float, parameters: int, rows: float) -> float:
    """Give the number of parameters times the logarithm of the rows, less twice the log likelihood."""
    return parameters * math.log(rows) - 2.0 * likelihood
