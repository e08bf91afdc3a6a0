"""The model: what a fit finds, and what can be done with it.

A model is data. It is kept as JSON (``model.json``), with coefficients in the units of the input columns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..clients.memberships import memberships, own_effects
from ..clients.store import ClientData
from ..core.arrays import Floats, Ints
from ..core.errors import DataError, SettingsError
from ..core.files import write_json
from ..core.names import INTERCEPT
from ..exchange.local_update import Mixture
from ..families.base import Family
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named
from .assignment import Assignment
from .model_file import content_of, read_model, text_of
from .prediction import count_quantile, foreseen, mixture_quantile


def kind_order(weights: Floats, theta: Floats) -> Ints:
    """Order kinds by weight, the largest first, and where weights are equal by their models (k, d). -> (k,)."""
    keys = [*np.round(theta, 6).T[::-1], -np.round(weights, 9)]
    return np.lexsort(keys)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """One linear model per kind of client. Kinds are in the order of their weights, the largest first."""

    features: tuple[str, ...]
    """Names of the d features, without the intercept."""
    coef: Floats
    """(k, d)"""
    intercept: Floats
    """(k,), zero if there is none."""
    weights: Floats
    """(k,): shares of clients."""
    noise: Floats | None
    """(k,): standard deviations; None for a family without."""
    has_intercept: bool
    loss: str
    recipe: str
    seed: int
    coef_error: Floats | None = None
    """(k, d): standard errors of the coefficients, if the recipe gives them."""
    intercept_error: Floats | None = None
    """(k,)"""
    factor: Floats | None = None
    """(k, d + 1 or d, r): F of each kind, if clients deviate from it: by F c, c ~ N(0, I); the intercept, if any, is
    the last."""
    client_column: str | None = None
    """The columns of the table that the fit read, so that other tables can be read alike."""
    target_column: str | None = None
    offset_column: str | None = None
    """What was added to the linear predictors, or that of which the logarithm was."""
    exposure_column: str | None = None
    warnings: tuple[str, ...] = ()
    family: str = GAUSSIAN.name
    """What the target is: see `families`."""
    degrees: float | None = None
    """Degrees of freedom of the family student."""
    details: dict[str, Any] = field(default_factory=dict)
    """What else the recipe says of the fit: settings, rows of each kind, census."""

    @classmethod
    def from_mixture(
        cls,
        mixture: Mixture,
        features: tuple[str, ...],
        errors: Floats | None = None,
        family: Family = GAUSSIAN,
        **rest: Any,
    ) -> Model:
        """Make a model of theta (k, d) and its standard errors, the intercept, if any, being the last feature."""
        has_intercept = features[-1:] == (INTERCEPT,)
        split = len(features) - has_intercept
        return cls(
            features=features[:split],
            coef=mixture.theta[:, :split],
            intercept=mixture.theta[:, split] if has_intercept else np.zeros(len(mixture.theta)),
            weights=mixture.weights,
            noise=mixture.noise if family.has_dispersion else None,
            has_intercept=has_intercept,
            coef_error=None if errors is None else errors[:, :split],
            intercept_error=errors[:, split] if errors is not None and has_intercept else None,
            family=family.name,
            degrees=getattr(family, "nu", None),
            **{"loss": family.loss, **rest},
        )

    @property
    def n_clusters(self) -> int:
        """Number of kinds (k)."""
        return len(self.coef)

    @property
    def theta(self) -> Floats:
        """(k, d): coefficients, the intercept, if any, being the last."""
        return np.column_stack([self.coef, self.intercept]) if self.has_intercept else self.coef

    @property
    def theta_error(self) -> Floats | None:
        """(k, d): standard errors of `theta`, if the recipe gives them."""
        if self.coef_error is None or not self.has_intercept or self.intercept_error is None:
            return self.coef_error
        return np.column_stack([self.coef_error, self.intercept_error])

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the columns of `theta`."""
        return (*self.features, INTERCEPT) if self.has_intercept else self.features

    @property
    def mixture(self) -> Mixture:
        """The models with weights and noise."""
        return Mixture(self.theta, self.weights, self.scale)

    @property
    def target_family(self) -> Family:
        """What the target is."""
        return family_named(self.family if self.degrees is None else f"{self.family}:{self.degrees!r}")

    @property
    def scale(self) -> Floats:
        """(k,): roots of the dispersion: the noise, or 1 where there is none."""
        return np.ones(self.n_clusters) if self.noise is None else self.noise

    @property
    def personal(self) -> bool:
        """Whether clients deviate from the model of their kind."""
        return self.factor is not None

    @property
    def bic(self) -> float | None:
        """The Bayesian information criterion, if the recipe gives it: less is better."""
        return self.details.get("bic")

    @property
    def log_likelihood(self) -> float | None:
        """The log likelihood with all constants, if the recipe gives it."""
        return self.details.get("likelihood")

    @property
    def deviation(self) -> Floats | None:
        """(k, d, d): Psi, the covariance of what clients of each kind deviate by; an intercept is the last."""
        return None if self.factor is None else self.factor @ self.factor.swapaxes(1, 2)

    def assign(self, clients: ClientData, *, uncertainty: bool | None = None) -> Assignment:
        """Find the kinds of clients, whether they were in the fit or not, from their rows and targets.

        If clients deviate from their kind, what they deviate by is found, too, with its ``uncertainty``, which
        intervals need: by default if it does not take many numbers for each client.
        """
        self.check_features(clients.features)
        if self.factor is not None:
            width = self.factor.shape[2]
            small = self.n_clusters * width * (width + 1) // 2 <= MOST_KEPT
            wanted = small if uncertainty is None else uncertainty
            found = own_effects(self.mixture, self.factor, clients, wanted)
            return Assignment(clients.ids, clients.rows, *found)
        return Assignment(clients.ids, clients.rows, memberships(self.mixture, clients, family=self.target_family))

    def predict(self, rows: Any, known: Assignment | None = None) -> Floats:
        """Predict the targets of rows, in their order: their means, which are probabilities or rates. -> (n_rows,).

        ``rows`` is a data frame that has the model's features and, for ``known`` clients, their column; or `Rows`.
        A client in ``known`` gets the mean over kinds weighted by its own probabilities, and by its own deviation from
        each; any other client the mean weighted by the shares of the kinds.
        """
        share, means, _ = foreseen(self, rows, known, spread=False)
        return np.asarray(np.einsum("nk,nk->n", self.target_family.mean(means), share))

    def predict_interval(self, rows: Any, known: Assignment | None = None, level: float = 0.9) -> Floats:
        """Give the bounds between which the targets of rows are with probability ``level``. -> (n_rows, 2).

        They are quantiles of the mixture over kinds of the family's distributions: of normal ones, which are made of
        the noise and of what is not known of the client's kind and deviation, or of whole numbers. What is not known of
        the model itself is not in them.
        """
        if not isinstance(level, Real) or not 0 < level < 1:
            raise SettingsError(f"level = {level!r} must be between 0 and 1")
        about = foreseen(self, rows, known, spread=True)
        tail = 0.5 * (1.0 - level)
        if self.target_family.discrete:
            bounds = [count_quantile(self.target_family, *about, share) for share in (tail, 1.0 - tail)]
            return np.column_stack(bounds)
        family = self.target_family
        return np.column_stack([mixture_quantile(*about, share, family) for share in (tail, 1.0 - tail)])

    def own_coefficients(self, known: Assignment) -> Floats:
        """Give each client's own model, its mean over kinds; the intercept, if any, is the last. -> (c, d)."""
        models = np.tile(self.theta, (len(known), 1, 1))
        if self.factor is not None:
            models += np.einsum("kdr,ckr->ckd", self.factor, known.effects)
        return np.asarray(np.einsum("ck,ckd->cd", known.probabilities, models))

    def __repr__(self) -> str:
        kinds = "1 kind" if self.n_clusters == 1 else f"{self.n_clusters} kinds"
        target = f" of '{self.target_column}'" if self.target_column else ""
        return f"<Model{target}: {kinds}, {len(self.features)} features>"

    def with_details(self, **more: Any) -> Model:
        """Give the same model, saying more of the fit."""
        return dataclasses.replace(self, details=self.details | more)

    def to_dict(self) -> dict[str, Any]:
        """Give the content of ``model.json``."""
        return content_of(self)

    def scalars(self) -> dict[str, Any]:
        """Give what ``--json`` says of the model."""
        content = self.to_dict()
        content.pop("details")
        return content

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a ``model.json``, or the one in a folder that ``mixfed fit`` wrote."""
        return cls.from_json(*text_of(Path(path)))

    @classmethod
    def from_json(cls, text: str, source: str) -> Model:
        """Read the content of a ``model.json``."""
        return read_model(cls, text, source)

    def _repr_html_(self) -> str:
        from ..report.notebook import model_html

        return model_html(self)

    def save(self, path: str | Path) -> None:
        """Write a ``model.json``, whole or not at all."""
        write_json(Path(path), self.to_dict())

    def check_known(self, known: Assignment) -> None:
        """Refuse what is not known of clients of these kinds."""
        if not isinstance(known, Assignment):
            raise DataError(f"what is known of clients must be what `assign` gave, not a {type(known).__name__}")
        if known.probabilities.shape[1] != self.n_clusters:
            kinds = known.probabilities.shape[1]
            raise DataError(f"these clients were assigned to {kinds} kinds, the model has {self.n_clusters}")

    def check_features(self, features: tuple[str, ...]) -> None:
        """Refuse rows with other columns."""
        if features != self.terms:
            raise DataError(
                f"the model was fitted on the features {', '.join(self.terms)}, these rows have {', '.join(features)}"
            )


MOST_KEPT = 300
"""Numbers of posterior covariances that are kept for a client, at most, unless they are asked for."""
