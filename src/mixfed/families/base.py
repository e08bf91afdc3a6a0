"""What a row costs under a model: the seam between the algorithm and the kind of regression.

A loss is named by a `Loss` and computed by two functions of a number or of arrays, which branch on its code: so one
kernel serves every loss, and its compiled form can be kept on disk.
"""

from dataclasses import dataclass
from typing import Any

from ..core.errors import SettingsError


@dataclass(frozen=True)
class Loss:
    """A loss of a target and a linear predictor."""

    name: str
    code: int


SQUARED = Loss("squared", 0)
LOSSES = {loss.name: loss for loss in (SQUARED,)}


def loss_named(name: str) -> Loss:
    """Find a loss by its name."""
    if name not in LOSSES:
        raise SettingsError(f"unknown loss '{name}'; choose from {', '.join(LOSSES)}")
    return LOSSES[name]


def value(code: int, y: Any, predictor: Any) -> Any:
    """Loss of one row: for a normal target, half the squared residual."""
    residual = y - predictor
    return 0.5 * residual * residual


def slope(code: int, y: Any, predictor: Any) -> Any:
    """How fast the loss falls as the predictor grows: for a normal target, the residual."""
    return y - predictor
