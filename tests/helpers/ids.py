"""Ids of clients."""

from __future__ import annotations

import numpy as np

OWNERS = np.array([3, 1, 2, 3, 1, 9])
DAYS = OWNERS.astype("datetime64[D]")
