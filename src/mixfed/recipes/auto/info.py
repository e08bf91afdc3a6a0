"""What people look at while the tuning-free recipe is at work."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Info:
    """What people look at."""

    likelihood: float | None = None
    """Log likelihood of the best candidate asked about, in the target's units; None before there is one."""
    candidates: int = 0
    """Candidates asked about."""
    rows: int | None = None
    """Rows of the clients asked: likelihoods of samples can be compared row by row."""
    movement: float | None = None
    """How far from each other, at most, a model of the best candidate and the nearest of the round before are, in
    standard units; None if numbers of kinds are compared."""

    @property
    def note(self) -> str:
        """Say how it goes."""
        return "" if self.likelihood is None else f"log likelihood {self.likelihood:.6g}"
