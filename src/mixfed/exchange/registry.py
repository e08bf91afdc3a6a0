"""What may occur in a message: every query and sum, and their parts, by the name under which they travel."""

from typing import Any

from ..families.base import Loss
from .anchors import AnchorEquations, AnchorReplies, ApplyMoment, BlockSum, Descend, Expand, Project
from .base import Batch, BatchReply, Traffic
from .census import Census, CensusSum, LargestNorm, LargestNormSum
from .local_update import FedAvg, FedProx, LocalUpdate, Mixture, ModelSum
from .mixture import Candidates, LocalStep, MixtureNumbers, MixtureReply, MixtureSums, SplitMoments
from .moments import Gram, GramSum, PairMoments, PairSum
from .random_effects import LeaveOut, LeftOutSum, RandomEffects, RandomEffectsReply, RandomEffectsSums
from .units import StandardUnits

MESSAGES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(ApplyMoment, BlockSum, Descend, AnchorReplies, Project, Expand, AnchorEquations),
        *(Batch, BatchReply, Traffic, Loss, StandardUnits),
        *(Census, CensusSum, LargestNorm, LargestNormSum),
        *(LocalUpdate, ModelSum, Mixture, FedAvg, FedProx),
        *(MixtureSums, MixtureNumbers, MixtureReply, Candidates, SplitMoments, LocalStep),
        *(Gram, GramSum, PairMoments, PairSum),
        *(RandomEffectsSums, RandomEffectsReply, RandomEffects, LeaveOut, LeftOutSum),
    )
}
