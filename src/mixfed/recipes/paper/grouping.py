"""The end of Phase 1: anchors closer than half the separation are of one kind, and a kind's model is their mean."""

import numpy as np
from scipy.sparse.csgraph import connected_components

from ...core.arrays import Floats
from ...core.errors import SettingsError
from ..settings import PaperSettings


def group_anchors(theta: Floats, n_clusters: int, settings: PaperSettings) -> Floats:
    """Join anchors, by their models theta (h, d); anchors joined through others are of one kind too. -> (k, d)."""
    gaps = np.linalg.norm(theta[:, None] - theta[None], axis=2)
    count, labels = connected_components(gaps < settings.separation / 2, directed=False)
    if count != n_clusters:
        hint = (
            "raise rounds, pairs or n_recruits so that anchors of one kind meet, or raise separation"
            if count > n_clusters
            else "lower separation, or raise n_anchors so that every kind has an anchor"
        )
        raise SettingsError(
            f"the {len(labels)} anchors form {count} groups at separation / 2 = {settings.separation / 2:g}, "
            f"not the {n_clusters} clusters asked for: {hint}"
        )
    members = labels[None, :] == np.arange(count)[:, None]
    means: Floats = members @ theta / members.sum(axis=1, keepdims=True)
    return means
