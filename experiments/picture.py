"""Draw the picture of the README: what one has, and what mixfed finds.

Usage: python experiments/picture.py [--out docs/images/kinds.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

from mixfed import MixedRegressor

COLOURS = ("#2563eb", "#ea580c", "#059669")
CLIENTS, ROWS = 400, 3


def main() -> None:
    """Simulate shops whose sales answer to price in three ways, fit, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/kinds.png"))
    options = parser.parse_args()
    rng = np.random.default_rng(4)
    kind = rng.choice(3, size=CLIENTS, p=[0.5, 0.3, 0.2])
    ids = np.repeat(np.arange(CLIENTS), ROWS)
    x = rng.uniform(0, 10, CLIENTS * ROWS)
    slope, level = np.array([-0.9, 0.15, 0.7])[kind[ids]], np.array([13.0, 6.0, 2.5])[kind[ids]]
    y = level + slope * x + 0.55 * rng.standard_normal(len(x))
    model = MixedRegressor().fit(x[:, None], y, groups=ids)

    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (before, after) = plt.subplots(1, 2, figsize=(10, 3.7), sharey=True, layout="constrained")
    order = np.lexsort((x, ids))
    lines = np.stack([x[order], y[order]], axis=1).reshape(CLIENTS, ROWS, 2)
    before.add_collection(LineCollection(list(lines), colors="#9ca3af", linewidths=0.5, alpha=0.5))
    before.scatter(x, y, s=6, color="#4b5563", linewidths=0)
    before.set_title(f"What you have: {CLIENTS} clients, {ROWS} rows each", loc="left")
    label = model.client_labels_[ids]
    after.scatter(x, y, s=6, c=np.array(COLOURS)[label], alpha=0.45, linewidths=0)
    ends = np.array([0.0, 10.0])
    for j, colour in enumerate(COLOURS[: model.n_clusters_]):
        after.plot(ends, model.intercept_[j] + model.coef_[j, 0] * ends, color=colour, linewidth=2.5)
        name = f"kind {j}: {model.weights_[j]:.0%} of clients, slope {model.coef_[j, 0]:+.2f}"
        after.plot([], [], color=colour, linewidth=2.5, label=name)
    after.set_title(f"What mixfed finds, without being told: {model.n_clusters_} kinds", loc="left")
    after.legend(frameon=False, loc="upper center", fontsize=9)
    after.set_ylim(0, 17.5)
    for axes in (before, after):
        axes.set_xlabel("price")
    before.set_ylabel("sales")
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
