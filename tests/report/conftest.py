"""The fit that a report is made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import mixfed
from mixfed import simulate

EVIL = "</script><script>document.title='owned'</script>"


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """Fit a table with names that are no friends of HTML."""
    folder = tmp_path_factory.mktemp("report")
    made = simulate("nested", n_clients=1500, dim=4, seed=3).clients
    frame = pd.DataFrame(made.phi, columns=["price", "a<b & c", EVIL, "a very long name of a column that nobody reads"])
    frame["shop"] = np.repeat([f"shop {i:04d} <i>" for i in range(made.n_clients)], made.rows)
    frame["sales"] = 100 * made.y
    frame.to_parquet(folder / "shops.parquet")
    done = mixfed("fit", folder / "shops.parquet", "--client", "shop", "--target", "sales", "--out", folder / "result")
    assert done.exit_code == 0, done.output
    return folder / "result"
