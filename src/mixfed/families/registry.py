"""The families, by the names under which they travel."""

from ..core.errors import SettingsError
from .base import Family
from .binomial import BINOMIAL
from .gaussian import GAUSSIAN
from .poisson import POISSON

FAMILIES: dict[str, Family] = {family.name: family for family in (GAUSSIAN, BINOMIAL, POISSON)}


def family_named(name: str) -> Family:
    """Find a family by its name, or by that of its loss."""
    by_loss = {family.loss: family for family in FAMILIES.values()}
    found = FAMILIES.get(name) or by_loss.get(name)
    if found is None:
        raise SettingsError(f"unknown family '{name}'; choose from {', '.join(FAMILIES)}")
    return found
