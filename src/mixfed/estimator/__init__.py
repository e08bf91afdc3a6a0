"""The scikit-learn face: `MixedRegressor` for numbers and counts, `MixedClassifier` for two classes."""

from .classifier import MixedClassifier
from .regressor import MixedRegressor

__all__ = ["MixedClassifier", "MixedRegressor"]
