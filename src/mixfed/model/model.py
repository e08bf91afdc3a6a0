"""The model: what a fit finds, and what can be done with it.

A model is data. It is kept as JSON (``model.json``), with coefficients in the units of the input columns.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..clients.memberships import memberships
from ..clients.store import Held
from ..core.arrays import Floats, Ints
from ..core.errors import DataError, SettingsError
from ..core.names import INTERCEPT
from ..exchange.local_update import Mixture
from ..families.base import loss_named
from ..tables.rows import Rows
from .assignment import Assignment

FORMAT = "mixfed/2"
FORMERLY = "mixfed/1"
"""Which is still read."""


_FOLLOWING = ("n_clusters", "personal", "deviation", "bic")
"""What a file says although it follows from the rest."""


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
    noise: Floats
    """(k,): standard deviations."""
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
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """What else the recipe says of the fit: settings, rows of each kind, census."""

    @classmethod
    def from_mixture(
        cls, mixture: Mixture, features: tuple[str, ...], errors: Floats | None = None, **rest: Any
    ) -> Model:
        """Make a model of theta (k, d) and its standard errors, the intercept, if any, being the last feature."""
        has_intercept = features[-1:] == (INTERCEPT,)
        split = len(features) - has_intercept
        return cls(
            features=features[:split],
            coef=mixture.theta[:, :split],
            intercept=mixture.theta[:, split] if has_intercept else np.zeros(len(mixture.theta)),
            weights=mixture.weights,
            noise=mixture.noise,
            has_intercept=has_intercept,
            coef_error=None if errors is None else errors[:, :split],
            intercept_error=errors[:, split] if errors is not None and has_intercept else None,
            **rest,
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
        return Mixture(self.theta, self.weights, self.noise)

    @property
    def personal(self) -> bool:
        """Whether clients deviate from the model of their kind."""
        return self.factor is not None

    @property
    def bic(self) -> float | None:
        """The Bayesian information criterion, if the recipe gives it: less is better."""
        return self.details.get("bic")

    @property
    def deviation(self) -> Floats | None:
        """(k, d, d): Psi, the covariance of what clients of each kind deviate by; an intercept is the last."""
        return None if self.factor is None else self.factor @ self.factor.swapaxes(1, 2)

    def assign(self, clients: Held, *, uncertainty: bool | None = None) -> Assignment:
        """Find the kinds of clients, whether they were in the fit or not, from their rows and targets.

        If clients deviate from their kind, what they deviate by is found, too, with its ``uncertainty``, which
        intervals need: by default if it does not take many numbers for each client.
        """
        self._check_features(clients.features)
        if self.factor is not None:
            from ..kernels.client_effects import MOST_KEPT, own_effects  # which plain kinds can do without

            width = self.factor.shape[2]
            small = self.n_clusters * width * (width + 1) // 2 <= MOST_KEPT
            wanted = small if uncertainty is None else uncertainty
            found = own_effects(self.mixture, self.factor, clients, wanted)
            return Assignment(clients.ids, clients.rows, *found)
        return Assignment(clients.ids, clients.rows, memberships(self.mixture, clients, loss=loss_named(self.loss)))

    def predict(self, rows: Any, known: Assignment | None = None) -> Floats:
        """Predict the targets of rows, in their order. -> (n_rows,).

        ``rows`` is a data frame that has the model's features and, for ``known`` clients, their column; or `Rows`.
        A client in ``known`` gets the mean over kinds weighted by its own probabilities, and by its own deviation from
        each; any other client the mean weighted by the shares of the kinds.
        """
        share, means, _ = self._foreseen(rows, known, spread=False)
        return np.asarray(np.einsum("nk,nk->n", means, share))

    def predict_interval(self, rows: Any, known: Assignment | None = None, level: float = 0.9) -> Floats:
        """Give the bounds between which the targets of rows are with probability ``level``. -> (n_rows, 2).

        They are quantiles of the mixture over kinds of normal distributions, which are made of the noise and of what is
        not known of the client's kind and deviation. What is not known of the model itself is not in them.
        """
        if not isinstance(level, Real) or not 0 < level < 1:
            raise SettingsError(f"level = {level!r} must be between 0 and 1")
        from ..kernels.client_effects import mixture_quantile

        about = self._foreseen(rows, known, spread=True)
        tail = 0.5 * (1.0 - level)
        return np.column_stack([mixture_quantile(*about, tail), mixture_quantile(*about, 1.0 - tail)])

    def own_coefficients(self, known: Assignment) -> Floats:
        """Give each client's own model, its mean over kinds; the intercept, if any, is the last. -> (c, d)."""
        models = np.tile(self.theta, (len(known), 1, 1))
        if self.factor is not None and known.effects is not None:
            models += np.einsum("kdr,ckr->ckd", self.factor, known.effects)
        return np.asarray(np.einsum("ck,ckd->cd", known.probabilities, models))

    def _foreseen(self, rows: Any, known: Assignment | None, spread: bool) -> tuple[Floats, Floats, Floats]:
        """Give probabilities, means and, if ``spread``, standard deviations of rows under each kind, (n, k) each."""
        if not isinstance(rows, Rows):
            rows = self._rows(rows, known is not None)
        self._check_features(rows.features)
        if known is not None:
            self.check_known(known)
        share = np.tile(self.weights, (len(rows.ids), 1))
        places = np.full(len(rows.ids), -1) if known is None else known.places(rows.ids)
        found, told = places >= 0, places[places >= 0]
        if known is not None:
            share[found] = known.probabilities[told]
        if self.factor is None:
            return share[rows.owner], rows.phi @ self.coef.T + self.intercept, np.tile(self.noise, (len(rows.owner), 1))
        from ..core.symmetric import packed
        from ..kernels.client_effects import predicted

        width = self.factor.shape[2]
        effects = np.zeros((*share.shape, width))
        covariance = np.tile(packed(np.eye(width)), (*share.shape, 1)) if spread else None
        if known is not None and found.any():
            effects[found] = known.effects[told]  # type: ignore[index]
            if covariance is not None:
                uncertainty = known.uncertainty[told]  # type: ignore[index]
                self._check_uncertainty(uncertainty, covariance)
                covariance[found] = uncertainty
        phi = np.column_stack([rows.phi, np.ones(len(rows.phi))]) if self.has_intercept else rows.phi
        return share[rows.owner], *predicted(phi, rows.owner, self.mixture, self.factor, effects, covariance)

    def _rows(self, frame: Any, named: bool) -> Rows:
        """Find the features in a data frame, and the clients if it has their column, as it must if ``named``."""
        import pyarrow as pa

        from ..tables.roles import as_table, rows_from_table

        client = self.client_column
        table = as_table(frame, [*self.features, client])
        if client is None or client not in table.column_names:
            if named:
                column = "a model that knows its client_column" if client is None else f"the column '{client}'"
                raise DataError(f"these rows do not say which of the known clients they belong to: it takes {column}")
            client = INTERCEPT  # a name that no column has: every row is of a client of its own
            table = table.append_column(client, pa.array(range(table.num_rows)))
        return rows_from_table(table, client, None, self.features, intercept=self.has_intercept, source="frame")

    def __repr__(self) -> str:
        kinds = "1 kind" if self.n_clusters == 1 else f"{self.n_clusters} kinds"
        target = f" of '{self.target_column}'" if self.target_column else ""
        return f"<Model{target}: {kinds}, {len(self.features)} features>"

    def with_details(self, **more: Any) -> Model:
        """Give the same model, saying more of the fit."""
        return dataclasses.replace(self, details=self.details | more)

    def to_dict(self) -> dict[str, Any]:
        """Give the content of ``model.json``."""
        content: dict[str, Any] = {"format": FORMAT}
        for name in [*(item.name for item in dataclasses.fields(self)), *_FOLLOWING]:
            value = getattr(self, name)
            content[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return content

    def scalars(self) -> dict[str, Any]:
        """Give what ``--json`` says of the model."""
        content = self.to_dict()
        content.pop("details")
        return content

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a ``model.json``, or the one in a folder that ``mixfed fit`` wrote."""
        path = Path(path)
        path = path / "model.json" if path.is_dir() else path
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise DataError(f"{path}: no model here ({reason}): give the folder that `mixfed fit` wrote") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not a model file of mixfed") from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, source: str) -> Model:
        """Read the content of a ``model.json``."""
        try:
            content = json.loads(text)
            found = content.pop("format")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DataError(f"{source}: not a model file of mixfed, or damaged: fit again") from error
        if found not in (FORMAT, FORMERLY):
            raise DataError(
                f"{source}: the format is '{found}', this version of mixfed reads '{FORMAT}' and '{FORMERLY}': "
                "update mixfed, or fit again"
            )
        known = {item.name for item in dataclasses.fields(cls)} | set(_FOLLOWING)
        if strange := sorted(content.keys() - known):
            raise DataError(f"{source}: this version of mixfed does not know {', '.join(strange)}: update mixfed")
        try:
            for name in _FOLLOWING:
                content.pop(name, None)
            if found == FORMERLY:
                for entry in content["details"].get("choice", []):
                    entry["bic"] *= -1.0  # more was better
            for name in ("coef", "intercept", "weights", "noise", "coef_error", "intercept_error", "factor"):
                if content.setdefault(name, None) is not None:
                    content[name] = np.array(content[name], dtype=np.float64)
            for name in ("features", "warnings"):
                content[name] = tuple(content[name])
            model = cls(**content)
            model._check()
            return model
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"{source}: the model file is damaged ({error}): fit again") from error

    def _repr_html_(self) -> str:
        from ..report.notebook import model_html

        return model_html(self)

    def save(self, path: str | Path) -> None:
        """Write a ``model.json``, whole or not at all."""
        from ..tables.write import write_json

        write_json(Path(path), self.to_dict())

    def _check(self) -> None:
        """Refuse parts that do not belong together: compiled code would not look twice."""
        k, dim = self.coef.shape
        shapes: dict[str, tuple[int, ...]] = {"coef": (k, len(self.features)), "coef_error": (k, dim)}
        shapes |= dict.fromkeys(("intercept", "weights", "noise", "intercept_error"), (k,))
        for name, shape in shapes.items():
            part = getattr(self, name)
            if part is not None and (part.shape != shape or not np.isfinite(part).all()):
                raise ValueError(f"{name} is not {shape} finite numbers")
        if (self.noise < 0).any() or (self.weights < 0).any():
            raise ValueError("noise or weights are below 0")
        if self.factor is not None:
            wide = dim + self.has_intercept
            if self.factor.ndim != 3 or self.factor.shape[:2] != (k, wide) or not np.isfinite(self.factor).all():
                raise ValueError(f"factor is not {(k, wide, 'r')} finite numbers")
            if (self.noise <= 0).any() or self.loss != "squared":
                raise ValueError("personal models need noise and squared loss")
        if k < 1 or type(self.has_intercept) is not bool:
            raise ValueError("no kinds, or has_intercept is neither true nor false")

    def check_known(self, known: Assignment) -> None:
        """Refuse what is not known of clients of these kinds."""
        if not isinstance(known, Assignment):
            raise DataError(f"what is known of clients must be what `assign` gave, not a {type(known).__name__}")
        if known.probabilities.shape[1] != self.n_clusters:
            kinds = known.probabilities.shape[1]
            raise DataError(f"these clients were assigned to {kinds} kinds, the model has {self.n_clusters}")

    def _check_uncertainty(self, told: Floats, wanted: Floats) -> None:
        """Refuse bounds for clients of whose deviations the uncertainty was not kept."""
        if told.shape[1:] != wanted.shape[1:] or np.isnan(told).any():
            raise DataError("the uncertainty of the clients' deviations was not kept: give their rows as history")

    def _check_features(self, features: tuple[str, ...]) -> None:
        if features != self.terms:
            raise DataError(
                f"the model was fitted on the features {', '.join(self.terms)}, these rows have {', '.join(features)}"
            )
