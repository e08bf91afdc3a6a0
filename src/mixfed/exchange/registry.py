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

_QUERIES = (
    ApplyMoment,
    Census,
    Descend,
    Expand,
    RandomEffectsSums,
    MixtureSums,
    Gram,
    LeaveOut,
    LocalStep,
    PairMoments,
    LargestNorm,
    Project,
    LocalUpdate,
    SplitMoments,
    Batch,
)
_REPLIES = (
    AnchorReplies,
    BlockSum,
    CensusSum,
    RandomEffectsReply,
    MixtureNumbers,
    MixtureReply,
    GramSum,
    LeftOutSum,
    ModelSum,
    PairSum,
    LargestNormSum,
    BatchReply,
    AnchorEquations,
)
_PARTS = (Candidates, FedAvg, FedProx, StandardUnits, Loss, Mixture, RandomEffects, Traffic)

MESSAGES: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_QUERIES, *_REPLIES, *_PARTS)}
