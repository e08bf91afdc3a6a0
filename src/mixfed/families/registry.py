"""The families, by the names under which they travel."""

import dataclasses
import math
from functools import cache

from ..core.errors import SettingsError
from .base import Family
from .binomial import BINOMIAL
from .gaussian import GAUSSIAN
from .poisson import POISSON
from .student import LEAST, MOST, OBSERVED, STUDENT

FAMILIES: dict[str, Family] = {family.name: family for family in (GAUSSIAN, STUDENT, BINOMIAL, POISSON)}


def family_named(name: str) -> Family:
    """Find a family by its name, or by that of its loss; behind "student:" its degrees of freedom may stand."""
    first, colon, rest = name.partition(":")
    if colon and first == STUDENT.name:
        return _student(rest)
    by_loss = {family.loss: family for family in FAMILIES.values()}
    found = FAMILIES.get(name) or by_loss.get(name)
    if found is None:
        raise SettingsError(f"unknown family '{name}'; choose from {', '.join(FAMILIES)}")
    return found


@cache
def _student(degrees: str) -> Family:
    try:
        nu = float(degrees.removesuffix(OBSERVED))
    except ValueError:
        nu = math.nan
    if not LEAST <= nu <= MOST:
        raise SettingsError(f"degrees of freedom are a number from {LEAST:g} to {MOST:g}, not '{degrees}'")
    return dataclasses.replace(STUDENT, nu=nu, observed=degrees.endswith(OBSERVED))
