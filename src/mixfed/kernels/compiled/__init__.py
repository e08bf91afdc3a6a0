"""Compiled twins of those plain kernels that large fits gain by, under the same names; the others are plain."""

from ..plain import *  # noqa: F403
from .local_updates import local_updates
from .mixture import mixture_sums
from .moments import census, second_moments
from .random_effects import random_effects_sums

TWINS = census, local_updates, mixture_sums, random_effects_sums, second_moments
