"""What the kinds are on two real tables: the pictures of docs/real-data.md, and how kinds go with what is known.

Usage: MIXFED_DATA=FOLDER python experiments/real_data.py [--out docs/images]

The columns z_* of the tables tell what a client is. The fits do not see them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from mixfed import MixedRegressor

COLOURS = ["#2f6bd8", "#d8602a", "#16936a", "#9c4aa3"]
PLAY = ["x_sqrt_G", "x_sqrt_A", "x_sqrt_E", "x_sqrt_DP", "x_decade"]
PLAY_NAMES = ["games", "assists", "errors", "double plays", "decade"]
POSITIONS = ["P", "SS", "3B", "2B", "OF", "1B", "C"]


def bison(data: Path, out: Path) -> None:
    """Draw the growth of two kinds, and compare them with the sexes."""
    table = pd.read_parquet(data / "konza_bison.parquet")
    grown = ["x_log_age", "x_log_age2", "x_year"]
    model = MixedRegressor(2).fit(table[grown], table["y"], groups=table["client"])
    kind = pd.Series(model.client_labels_, index=model.clients_)
    sex, age = table.groupby("client")["z_sex"].first(), table.groupby("client")["m_age"].max()
    old = age[age >= 4].index
    print(
        f"bison seen to age 4: adjusted Rand index {adjusted_rand_score(sex[old], kind[old]):.3f} between kind and sex"
    )
    print(pd.crosstab(sex[old], kind[old]))

    figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    shown = table[table["client"].isin(old)]
    for j in range(2):
        mine = shown[shown["client"].map(kind) == j]
        panel.scatter(mine["m_age"], mine["y"], s=5, alpha=0.25, color=COLOURS[j], linewidths=0)
        years = np.linspace(0, mine["m_age"].max(), 100)
        growth = pd.DataFrame({"x_log_age": np.log1p(years), "x_log_age2": np.log1p(years) ** 2, "x_year": 0.0})
        share = (sex[[client for client in old if kind[client] == j]] == ("F" if j == 0 else "M")).mean()
        label = f"kind {j}: {share:.0%} {'cows' if j == 0 else 'bulls'}"
        panel.plot(
            years, growth.to_numpy() @ model.coef_[j] + model.intercept_[j], color=COLOURS[j], lw=2.5, label=label
        )
    _finish(
        panel, "age in years", "weight in pounds", "Bison seen to age 4 or older, and the two kinds that were found"
    )
    figure.savefig(out / "bison.png", dpi=150)


def fielding(data: Path, out: Path) -> None:
    """Draw which positions the players of each of four kinds have, and by which coefficients kinds differ."""
    table = pd.read_parquet(data / "lahman_fielding_1954_2024.parquet")
    model = MixedRegressor(4).fit(table[PLAY], table["y"], groups=table["client"])
    kind = pd.Series(model.client_labels_, index=model.clients_)
    position, rows = table.groupby("client")["z_primary_pos"].first(), table.groupby("client").size()
    many = rows[rows >= 5].index
    agreement = adjusted_rand_score(position[many], kind[many])
    print(f"fielding, players of 5 rows or more: adjusted Rand index {agreement:.3f} between kind and position")
    counts = pd.crosstab(position[many], kind[many]).loc[POSITIONS]
    print(counts)
    print(pd.DataFrame(model.coef_, columns=PLAY_NAMES).round(2))

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1, 1.3])
    shares = counts.div(counts.sum(axis=1), axis=0).to_numpy()
    left.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), share in np.ndenumerate(shares):
        left.text(j, i, f"{share:.0%}", ha="center", va="center", color="white" if share > 0.6 else "black", fontsize=9)
    left.set_xticks(range(4), [f"kind {j}" for j in range(4)])
    left.set_yticks(range(len(POSITIONS)), POSITIONS)
    left.set_title("Where players of a position went", loc="left", fontsize=11)
    spread = table[PLAY].std().to_numpy()
    for j in range(4):
        right.plot(model.coef_[j] * spread, np.arange(5) + 0.12 * (j - 1.5), "o", color=COLOURS[j], label=f"kind {j}")
    right.axvline(0, color="grey", lw=0.8)
    right.set_yticks(range(5), PLAY_NAMES)
    right.invert_yaxis()
    _finish(right, "change of the root of putouts for a usual change", "", "What tells the kinds apart")
    figure.savefig(out / "fielding.png", dpi=150)


def _finish(panel: Any, across: str, up: str, title: str) -> None:
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.set_title(title, loc="left", fontsize=11)
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    if "MIXFED_DATA" not in os.environ:
        parser.error("set MIXFED_DATA to the folder of the real data")
    data = Path(os.environ["MIXFED_DATA"])
    bison(data, options.out)
    fielding(data, options.out)


if __name__ == "__main__":
    main()
