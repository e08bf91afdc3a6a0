"""Which family a target is of, where the user leaves that open: of those that it may be, the one with the best BIC."""

import dataclasses

from ..core.errors import DataError
from ..exchange.census import Census
from ..exchange.pool import Pool
from ..families.base import Family
from ..families.binomial import BINOMIAL
from ..families.registry import FAMILIES
from ..families.student import STUDENT
from ..model.fit import Fit, Watcher
from .auto import fit_auto
from .settings import AutoSettings


def fit_family(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int | None,
    settings: AutoSettings,
    *,
    seed: int = 0,
    watch: Watcher | None = None,
) -> Fit:
    """Fit each family that the target may be of, and keep the one with the best BIC; its details say what was tried."""
    fits = {}
    for family in possible_families(pool):
        if settings.personal and not family.quadratic:
            continue
        own = dataclasses.replace(settings, family=family.name)
        fits[family.name] = fit_auto(pool, features, n_clusters, own, seed=seed, watch=watch)
    best = min(fits.values(), key=lambda found: found.model.bic or 0.0)
    tried = [{"family": name, "bic": found.model.bic, "chosen": found is best} for name, found in fits.items()]
    seconds = {phase: sum(found.seconds.get(phase, 0.0) for found in fits.values()) for phase in best.seconds}
    trace = [record for found in fits.values() for record in found.trace]
    model = best.model.with_details(families=tried)
    return dataclasses.replace(best, model=model, trace=trace, traffic=pool.traffic, seconds=seconds)


def possible_families(pool: Pool) -> list[Family]:
    """Give the families that the target may be of; of two values, 0 and 1, it can only be classes.

    Whole numbers are not tried with heavy tails: a narrow t around one of them has any density that one likes.
    """
    census = pool.ask(Census())

    def may_be(family: Family) -> bool:
        if family is STUDENT and census.whole:
            return False
        try:
            family.check_target(census.target_low, census.target_high, census.whole)
        except DataError:
            return False
        return True

    return [BINOMIAL] if may_be(BINOMIAL) else [family for family in FAMILIES.values() if may_be(family)]
