"""The algorithms, written against a pool: they never see rows, only sums.

For readers of the paper `paper`, line by line; `auto` needs nothing tuned, `personal` adds a model of each client's own
within its kind.
`fit` is the one choice among them.
"""

import dataclasses

from ..core.errors import SettingsError
from ..exchange.pool import Pool
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named
from ..model.fit import Fit, Watcher
from .settings import AutoSettings, PaperSettings


def fit(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int | None,
    settings: AutoSettings | PaperSettings,
    *,
    loss: str = GAUSSIAN.loss,
    seed: int = 0,
    watch: Watcher | None = None,
) -> Fit:
    """Fit by the recipe that the settings belong to, which alone is imported.

    ``loss`` is the family, by its name or that of its loss, if the settings do not say it; "auto" finds it.
    """
    if loss == "auto" and isinstance(settings, AutoSettings):
        from .choice import fit_family

        return fit_family(pool, features, n_clusters, settings, seed=seed, watch=watch)
    family = family_named(loss)
    if isinstance(settings, PaperSettings):
        if n_clusters is None:
            raise SettingsError("the paper's recipe does not find the number of kinds: give n_clusters")
        if family is not GAUSSIAN:
            raise SettingsError(f"the paper's recipe is for the family gaussian: take recipe 'auto' for {family.name}")
        from .paper import fit_paper

        return fit_paper(pool, features, n_clusters, settings, seed=seed, watch=watch)
    if family is not GAUSSIAN:
        settings = dataclasses.replace(settings, family=family.name)
    from .auto import fit_auto

    return fit_auto(pool, features, n_clusters, settings, seed=seed, watch=watch)
