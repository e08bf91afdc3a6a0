"""What may occur in a message: every query and sum, and their parts, by the name under which they travel."""

from __future__ import annotations

from typing import Any

from ..families.base import Loss
from .anchors import AnchorReplies, ApplyMoment, BlockSum, Descend, Project, Statistics
from .base import Replies, Together, Traffic
from .census import Census, CensusSum, Peak, PeakSum
from .local_update import FedAvg, FedProx, Mixture, ModelSum, Refine
from .mixture import Candidates, Expect, ExpectNumbers, ExpectSum, LocalStep, SplitMoments
from .moments import Gram, GramSum, PairMoments, PairSum
from .random_effects import Deviate, DeviateSum, LeaveOut, LeftOutSum, Spreads
from .units import Frame

_QUERIES = (
    ApplyMoment,
    Census,
    Descend,
    Deviate,
    Expect,
    Gram,
    LeaveOut,
    LocalStep,
    PairMoments,
    Peak,
    Project,
    Refine,
    SplitMoments,
    Together,
)
_REPLIES = (
    AnchorReplies,
    BlockSum,
    CensusSum,
    DeviateSum,
    ExpectNumbers,
    ExpectSum,
    GramSum,
    LeftOutSum,
    ModelSum,
    PairSum,
    PeakSum,
    Replies,
    Statistics,
)
_PARTS = (Candidates, FedAvg, FedProx, Frame, Loss, Mixture, Spreads, Traffic)

MESSAGES: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_QUERIES, *_REPLIES, *_PARTS)}
