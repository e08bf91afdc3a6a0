"""Every kernel as NumPy says it: for readers of the mathematics, for small tables, and as the oracle."""

from .anchor_em import drawn, em_steps, quadratic_form
from .client_effects import client_effects
from .leave_one_out import leave_one_out
from .local_updates import FEDAVG, FEDPROX, local_updates
from .memberships import memberships
from .mixture import mixture_sums, posterior
from .moments import census, largest_norm, pair_moments, project, round_down, round_up, second_moments
from .power_iteration import power_iteration
from .random_effects import random_effects_sums
from .random_effects_information import information

__all__ = [
    "FEDAVG",
    "FEDPROX",
    "census",
    "client_effects",
    "drawn",
    "em_steps",
    "information",
    "largest_norm",
    "leave_one_out",
    "local_updates",
    "memberships",
    "mixture_sums",
    "pair_moments",
    "posterior",
    "power_iteration",
    "project",
    "quadratic_form",
    "random_effects_sums",
    "round_down",
    "round_up",
    "second_moments",
]
