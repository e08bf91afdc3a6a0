"""What clients answer, computed from their rows.

For whoever audits the mathematics of an exchange: a file for each of `exchange`, of the same name. `answer` serves all
clients that are held in one place at once and gives the sum of their answers, `answer_each` gives one for each.
"""

from . import anchors, census, local_update, mixture, moments, random_effects  # which register their answers
from .dispatch import answer, answer_each

__all__ = ["anchors", "answer", "answer_each", "census", "local_update", "mixture", "moments", "random_effects"]
