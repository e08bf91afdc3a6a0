"""The model: what a fit finds, and what can be done with it.

A model is data. It is kept as JSON (``model.json``), with coefficients in the units of the input columns.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Array, Floats, Ints
from .client import memberships
from .data import INTERCEPT, Rows
from .errors import DataError
from .exchange import Mixture
from .losses import loss_named
from .store import Held

FORMAT = "mixfed/1"


@dataclass(frozen=True, eq=False)
class Assignment:
    """The kinds of clients."""

    ids: Array
    """(c,)"""
    rows: Ints
    """(c,)"""
    probabilities: Floats
    """(c, k)"""

    def __len__(self) -> int:
        return len(self.ids)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """As an array, an assignment is its kinds."""
        return np.asarray(self.cluster, dtype=dtype)

    @cached_property
    def cluster(self) -> Ints:
        """(c,): the most probable kind."""
        return np.asarray(np.argmax(self.probabilities, axis=1))

    @cached_property
    def probability(self) -> Floats:
        """(c,): the probability of that kind."""
        best: Floats = self.probabilities.max(axis=1)
        return best

    def places(self, ids: Array) -> Ints:
        """Find clients (c,) in the assignment. -> (c,): their places, -1 for those that are not in it."""
        mine, wanted = _comparable(self.ids, ids)
        place = {client: i for i, client in enumerate(mine.tolist())}
        return np.array([place.get(client, -1) for client in wanted.tolist()], dtype=np.int64)

    def updated(self, newer: Assignment) -> Assignment:
        """Take over what a newer assignment says of its clients, and keep the rest."""
        kept = newer.places(self.ids) < 0
        mine, theirs = _comparable(self.ids[kept], newer.ids)
        return Assignment(
            np.concatenate([mine, theirs]),
            np.concatenate([self.rows[kept], newer.rows]),
            np.concatenate([self.probabilities[kept], newer.probabilities]),
        )

    def columns(self) -> dict[str, Array]:
        """Give the columns of ``clients.parquet``."""
        columns = {
            "client": self.ids,
            "rows": self.rows,
            "cluster": self.cluster,
            "probability": self.probability,
        }
        for j, column in enumerate(self.probabilities.T):
            columns[f"probability_{j}"] = column
        return columns


def _comparable(first: Array, second: Array) -> tuple[Array, Array]:
    """Compare ids as text where one side has numbers and the other has not: files differ in what they call an id."""
    if (first.dtype.kind in "iuf") == (second.dtype.kind in "iuf"):
        return first, second
    return first.astype(np.str_).astype(object), second.astype(np.str_).astype(object)


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

    def assign(self, clients: Held) -> Assignment:
        """Find the kinds of clients, whether they were in the fit or not, from their rows and targets."""
        self._check_features(clients.features)
        return Assignment(clients.ids, clients.rows, memberships(self.mixture, clients, loss=loss_named(self.loss)))

    def predict(self, rows: Any, known: Assignment | None = None) -> Floats:
        """Predict the targets of rows, in their order. -> (n_rows,).

        ``rows`` is a data frame that has the model's features and, for ``known`` clients, their column; or `Rows`.
        A client in ``known`` gets the mean over kinds weighted by its own probabilities, any other client the
        mean weighted by the shares of the kinds.
        """
        if not isinstance(rows, Rows):
            rows = self._rows(rows)
        self._check_features(rows.features)
        share = np.tile(self.weights, (len(rows.ids), 1))
        if known is not None:
            places = known.places(rows.ids)
            share[places >= 0] = known.probabilities[places[places >= 0]]
        prediction: Floats = np.einsum("nk,nk->n", rows.phi @ self.coef.T + self.intercept, share[rows.owner])
        return prediction

    def _rows(self, frame: Any) -> Rows:
        """Find the features in a data frame, and the clients if it has their column."""
        import pyarrow as pa

        from .tables import rows_from_table

        table, client = pa.table(frame), self.client_column
        if client is None or client not in table.column_names:
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
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            content[item.name] = value.tolist() if isinstance(value, np.ndarray) else value
        return content | {"n_clusters": self.n_clusters}

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
        if found != FORMAT:
            raise DataError(
                f"{source}: the format is '{found}', this version of mixfed reads '{FORMAT}': "
                "update mixfed, or fit again"
            )
        try:
            content.pop("n_clusters")
            for name in ("coef", "intercept", "weights", "noise", "coef_error", "intercept_error"):
                if content[name] is not None:
                    content[name] = np.array(content[name], dtype=np.float64)
            for name in ("features", "warnings"):
                content[name] = tuple(content[name])
            model = cls(**content)
            model._check()
            return model
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"{source}: the model file is damaged ({error}): fit again") from error

    def _repr_html_(self) -> str:
        from .report.notebook import model_html

        return model_html(self)

    def save(self, path: str | Path) -> None:
        """Write a ``model.json``, whole or not at all."""
        from .tables import write_json

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
        if k < 1 or type(self.has_intercept) is not bool:
            raise ValueError("no kinds, or has_intercept is neither true nor false")

    def _check_features(self, features: tuple[str, ...]) -> None:
        if features != self.terms:
            raise DataError(
                f"the model was fitted on the features {', '.join(self.terms)}, these rows have {', '.join(features)}"
            )
