"""The algorithms, written against a pool: they never see rows, only sums.

For readers of the paper `paper`, line by line; `auto` needs nothing tuned, `personal` adds a model of each client's own
within its kind.
`fit` is the one choice among them.
"""

from ..core.errors import SettingsError
from ..exchange.pool import Pool
from ..families.base import SQUARED, loss_named
from ..model.fit import Fit, Watcher
from .settings import AutoSettings, PaperSettings


def fit(
    pool: Pool,
    features: tuple[str, ...],
    n_clusters: int | None,
    settings: AutoSettings | PaperSettings,
    *,
    loss: str = SQUARED.name,
    seed: int = 0,
    watch: Watcher | None = None,
) -> Fit:
    """Fit by the recipe that the settings belong to, which alone is imported."""
    wanted = loss_named(loss)
    if isinstance(settings, PaperSettings):
        if n_clusters is None:
            raise SettingsError("the paper's recipe does not find the number of kinds: give n_clusters")
        from .paper import fit_paper

        return fit_paper(pool, features, n_clusters, settings, seed=seed, loss=wanted, watch=watch)
    if wanted is not SQUARED:
        raise SettingsError(f"loss = {loss!r} goes with recipe 'paper': the tuning-free recipe takes squared loss")
    from .auto import fit_auto

    return fit_auto(pool, features, n_clusters, settings, seed=seed, watch=watch)
