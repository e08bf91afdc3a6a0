"""Your own table: a CSV file with an id column, a report to look at, and the model read back in two lines."""

import csv
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.csv

from mixfed import MixedRegressor, Model

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# A table as people have them: stores, prices, advertising, sales. A third of the stores lives on advertising.
with (folder / "sales.csv").open("w", newline="") as file:
    lines = csv.writer(file)
    lines.writerow(["store", "price", "advertising", "sales"])
    for store in range(600):
        by_price, by_advertising = (-4.0, 0.5) if store % 3 else (-1.0, 3.0)
        for _ in range(rng.integers(2, 9)):
            price, advertising = rng.normal(10, 2), rng.exponential(5)
            sales = 100 + by_price * price + by_advertising * advertising + rng.normal(0, 2)
            lines.writerow([f"store-{store:03d}", f"{price:.2f}", f"{advertising:.2f}", f"{sales:.1f}"])

table = pyarrow.csv.read_csv(folder / "sales.csv").to_pandas()  # or pandas.read_csv
model = MixedRegressor().fit(table[["price", "advertising"]], table["sales"], groups=table["store"])
for kind in range(model.n_clusters_):
    price, advertising = model.coef_[kind]
    print(f"kind {kind}: {model.weights_[kind]:.0%} of stores, price {price:+.2f}, advertising {advertising:+.2f}")

model.report(folder / "report.html")
model.model_.save(folder / "model.json")
print("look at", folder / "report.html")

# Later, elsewhere: two lines bring the model back.
again = Model.load(folder / "model.json")
print(again.features, again.coef.round(2).tolist())
