"""Degrees of freedom of Student's t: one nu for all kinds, at the maximum of the likelihood.

For each nu that is tried the mixture is polished anew, which takes few exchanges from one nu to the next.
"""

import dataclasses
from collections.abc import Generator
from typing import Any

import numpy as np

from ...exchange.base import Query
from ...exchange.mixture import MixtureSums
from ...exchange.units import StandardUnits
from ...families.student import LEAST, MOST, Student
from .refine import MOST_POLISH, Maximum, polish

FIRST_DEGREES, _NEAR, _ROUNDS = 0.5, 0.06, 8
"""First step of log nu; a smaller one is the last; steps at most."""
_STEPS = 3
"""Of Newton's method from one nu to the next."""


def find_degrees(units: StandardUnits, found: Maximum, first: float) -> Generator[Query[Any, Any], Any, Maximum]:
    """Find nu by parabolas through the best of those tried and its neighbours."""
    family = found.rules.family
    assert isinstance(family, Student)
    tried = {float(np.log(family.nu)): found}
    centre, step = float(np.log(family.nu)), first
    for _ in range(_ROUNDS):
        for place in (centre - step, centre + step):
            place = float(np.clip(place, np.log(LEAST), np.log(MOST)))
            if place not in tried:
                tried[place] = yield from _polished(units, tried[centre], float(np.exp(place)))
        best = max(tried, key=lambda place: tried[place].value)
        if best != centre:
            centre = best
            continue
        low, high = (tried.get(centre + sign * step) for sign in (-1, 1))
        if low is None or high is None:
            break  # at a bound
        here = tried[centre].value
        bend = low.value + high.value - 2.0 * here
        place = centre + (0.5 * step * (low.value - high.value) / bend if bend < 0 else 0.0)
        if place not in tried:
            tried[place] = yield from _polished(units, tried[centre], float(np.exp(place)))
        centre = max(tried, key=lambda place: tried[place].value)
        if step < _NEAR:
            break
        step *= 0.2
    final = yield from _polished(units, tried[centre], float(np.exp(centre)), MOST_POLISH)
    return (yield from _with_observed_information(units, final))


def _with_observed_information(units: StandardUnits, found: Maximum) -> Generator[Query[Any, Any], Any, Maximum]:
    """Ask once more at the maximum, for standard errors that do not rest on the family being the right one."""
    family = dataclasses.replace(found.rules.family, observed=True)  # type: ignore[call-arg]
    reply = yield MixtureSums(dataclasses.replace(units, family=family.wire_name), found.mixture, (0,))
    return dataclasses.replace(found, reply=reply)


def _polished(
    units: StandardUnits, found: Maximum, nu: float, steps: int = _STEPS
) -> Generator[Query[Any, Any], Any, Maximum]:
    family = dataclasses.replace(found.rules.family, nu=nu)  # type: ignore[call-arg]
    moved = dataclasses.replace(found, rules=dataclasses.replace(found.rules, family=family), next_step=None)
    return (yield from polish(dataclasses.replace(units, family=family.wire_name), moved, steps=steps))
