"""Every kernel as NumPy says it: for readers of the mathematics, for small tables, and as the oracle."""

from .anchor_em import drawn as drawn, em_steps as em_steps, quadratic_form as quadratic_form
from .client_effects import client_effects as client_effects
from .expansion import expand as expand
from .generic import generic_sums as generic_sums
from .generic_updates import generic_updates as generic_updates
from .leave_one_out import leave_one_out as leave_one_out
from .local_updates import FEDAVG as FEDAVG, FEDPROX as FEDPROX, local_updates as local_updates
from .memberships import hardest as hardest, memberships as memberships, softmax as softmax
from .mixture import mixture_sums as mixture_sums, posterior as posterior
from .moments import (
    census as census,
    largest_norm as largest_norm,
    pair_moments as pair_moments,
    project as project,
    round_down as round_down,
    round_up as round_up,
    second_moments as second_moments,
)
from .power_iteration import power_iteration as power_iteration
from .random_effects import random_effects_sums as random_effects_sums
from .random_effects_information import information as information
from .rows import by_client as by_client
from .weighted import weighted_second_moments as weighted_second_moments, weighted_totals as weighted_totals
