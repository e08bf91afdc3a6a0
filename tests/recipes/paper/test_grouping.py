"""Anchors are grouped into kinds."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.paper import small_settings
from mixfed.core.errors import SettingsError
from mixfed.recipes.paper.grouping import group_anchors


def test_anchors_within_half_the_separation_are_joined_and_averaged():
    theta = np.array([[0.0, 0.0], [5.0, 5.0], [0.4, 0.0], [0.8, 0.0], [5.0, 5.2]])
    grouped = group_anchors(theta, 2, small_settings(separation=1.0))
    np.testing.assert_allclose(grouped, [[0.4, 0.0], [5.0, 5.1]])


@pytest.mark.parametrize(("k", "hint"), [(3, "lower separation"), (1, "raise rounds")])
def test_a_wrong_number_of_groups_is_an_error_that_names_a_setting(k, hint):
    theta = np.array([[0.0], [5.0]])
    with pytest.raises(SettingsError, match=f"form 2 groups .* not the {k} clusters .*{hint}"):
        group_anchors(theta, k, small_settings())
