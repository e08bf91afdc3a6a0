"""A fit that nobody made, and what a report holds."""

from __future__ import annotations

import json
import re

import numpy as np

from mixfed import Model
from mixfed.exchange.base import Traffic
from mixfed.model.fit import Fit


def embedded(html):
    return json.loads(re.search(r'<script type="application/json" id="digest">(.*?)</script>', html, re.S)[1])


def some_fit(**details):
    theta = np.array([[1.0, 5.0], [1.0, -3.0], [2.0, 5.0]])
    model = Model(
        features=("a", "b"),
        coef=theta,
        intercept=np.zeros(3),
        weights=np.array([0.5, 0.3, 0.2]),
        noise=np.array([1.0, 2.0, 3.0]),
        has_intercept=False,
        loss="squared",
        recipe="auto",
        seed=0,
        details=details,
    )
    return Fit(model, [], Traffic(), {}, "")
