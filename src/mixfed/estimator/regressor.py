"""The scikit-learn face: `MixedRegressor`."""

import dataclasses
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from ..clients.local import LocalPool
from ..clients.packed import Clients
from ..core.arrays import Array, Floats, Ints
from ..core.errors import SettingsError
from ..model.assignment import Assignment
from ..model.fit import Fit
from ..model.model import Model
from ..model.residuals import residuals
from ..recipes import fit
from ..recipes.settings import AutoSettings, PaperSettings
from ..tables.rows import Rows, rows_from_arrays


class MixedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression for many clients that behave in a few unknown ways.

    Finds the kinds of client, one linear model per kind, and each client's own kind.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of kinds; "auto" finds it from the data by BIC.
    recipe : {"auto", "paper"}, default="auto"
        "auto" needs no tuning. "paper" follows the paper and needs ``settings``.
    settings : AutoSettings, PaperSettings or None, default=None
        What the recipe lets one choose; the paper's recipe needs a `PaperSettings`.
    fit_intercept : bool, default=True
        Give every model a constant term.
    start : array of shape (n_features,) or (n_clusters, n_features), or None, default=None
        A model, or one per kind, to try besides the recipe's own. The auto recipe gives the same result whatever it is.
    family : {"gaussian", "student", "binomial", "poisson", "auto"}, default="gaussian"
        What the target is: a number, one with heavy tails, 0 or 1, or a count (auto recipe); "auto" takes the one with
        the best BIC of those that it may be. Predictions are means: probabilities, or rates.
    personal : bool, default=False
        Give every client a deviation of its own from the model of its kind (auto recipe): a mixture of linear mixed
        models, or with one kind the classical one.
    random_state : int, RandomState or None, default=None
        Same number, same result. None is 0: a fit is repeatable unless asked otherwise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_clusters, n_features)
        Coefficients of each kind, the largest kind first.
    intercept_ : ndarray of shape (n_clusters,)
        Constant terms.
    weights_ : ndarray of shape (n_clusters,)
        Shares of clients.
    noise_ : ndarray of shape (n_clusters,) or None
        Standard deviation of the noise in each kind; None for a family without.
    log_likelihood_ : float or None
        Log likelihood with all constants (auto recipe).
    coef_error_ : ndarray of shape (n_clusters, n_features) or None
        Standard errors of the coefficients (auto recipe).
    intercept_error_ : ndarray of shape (n_clusters,) or None
        Standard errors of the constant terms.
    deviation_ : ndarray of shape (n_clusters, n_terms, n_terms) or None
        Covariance of what clients of each kind deviate by, if personal. The terms are the features and, if it is
        fitted, the intercept as the last.
    n_clusters_ : int
        Number of kinds.
    clients_ : ndarray of shape (n_clients,)
        Ids of the clients in the fit, sorted.
    client_labels_ : ndarray of shape (n_clients,)
        The most probable kind of each.
    client_proba_ : ndarray of shape (n_clients, n_clusters)
        Probabilities of the kinds.
    bic_ : float or None
        Bayesian information criterion: less is better, as in R and statsmodels (auto recipe).
    choice_ : list of dict
        Log likelihood and BIC of each number of kinds that was tried.
    warnings_ : list of str
        What cannot be known from the data.
    model_ : Model
        The model, for saving.
    run_ : Fit
        The model and how it came about: trace, exchanges, seconds.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from mixfed import MixedRegressor, simulate
    >>> clients = simulate("mirror", n_clients=500, dim=3, seed=0).clients
    >>> ids = np.repeat(clients.ids, clients.rows)
    >>> model = MixedRegressor().fit(clients.phi, clients.y, groups=ids)
    >>> model.n_clusters_
    2
    """

    # Who routes groups wants them everywhere: without them, predictions and scores would be those of strangers.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        recipe: str = "auto",
        settings: AutoSettings | PaperSettings | None = None,
        fit_intercept: bool = True,
        start: Any = None,
        family: str = "gaussian",
        personal: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.recipe = recipe
        self.settings = settings
        self.fit_intercept = fit_intercept
        self.start = start
        self.family = family
        self.personal = personal
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the kinds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients, in any order.
        y : array-like of shape (n_samples,)
            Targets.
        groups : array-like of shape (n_samples,) or None, default=None
            The client of each row: numbers, text, dates. Without it every row is a client of its own.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            How often each row counts: one of weight 2 as two rows, one of weight 0 not at all.
        offset : array-like of shape (n_samples,) or None, default=None
            What is added to each linear predictor: the logarithm of the exposure, say.

        Returns
        -------
        self : MixedRegressor
            The fitted estimator.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True, ensure_min_samples=2)
        if groups is not None:
            check_consistent_length(X, y, groups)
        more = {"intercept": self.fit_intercept, "features": self._names(), "offset": offset, "weight": sample_weight}
        clients = Clients.from_arrays(X, y, groups, **more)
        found = self._fit(clients)
        assigned = found.model.assign(clients)
        model = found.model.with_details(residuals=residuals(found.model, clients, assigned))
        self.run_: Fit = dataclasses.replace(found, model=model)
        self.model_: Model = model
        self.coef_: Floats = model.coef
        self.intercept_: Floats = model.intercept
        self.weights_: Floats = model.weights
        self.noise_: Floats | None = model.noise
        self.coef_error_: Floats | None = model.coef_error
        self.intercept_error_: Floats | None = model.intercept_error
        self.n_clusters_: int = model.n_clusters
        self.bic_ = model.bic
        self.log_likelihood_ = model.log_likelihood
        self.choice_: list[dict[str, Any]] = model.details.get("choice", [])
        self.warnings_: list[str] = list(model.warnings)
        self.clients_: Array = assigned.ids
        self.client_labels_: Ints = assigned.cluster
        self.client_proba_: Floats = assigned.probabilities
        self.deviation_: Floats | None = model.deviation
        self._known = assigned
        return self

    def predict(self, X: Any, groups: Any = None, history: Assignment | None = None, offset: Any = None) -> Floats:
        """Predict targets, or more exactly their means.

        A client in ``history`` is predicted by the kinds found there, another client of the fit by its own kinds, any
        other (and every row, without ``groups``) by the mean over the kinds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,) or None, default=None
            The client of each row.
        history : Assignment or None, default=None
            What `assign` found of clients, new or old, from their latest rows.
        offset : array-like of shape (n_samples,) or None, default=None
            What is added to each linear predictor.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Predictions.
        """
        rows, known = self._asked(X, groups, history, offset)
        return self.model_.predict(rows, known)

    def predict_interval(
        self, X: Any, groups: Any = None, history: Assignment | None = None, level: float = 0.9, offset: Any = None
    ) -> Floats:
        """Give bounds between which targets are with probability ``level``.

        Parameters
        ----------
        X, groups, history, offset
            As `predict` takes them.
        level : float, default=0.9
            The probability.

        Returns
        -------
        bounds : ndarray of shape (n_samples, 2)
            Lower and upper bounds.
        """
        rows, known = self._asked(X, groups, history, offset)
        return self.model_.predict_interval(rows, known, level)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Give the coefficient of determination R^2 of the predictions.

        Parameters
        ----------
        X, groups
            As `predict` takes them.
        y, sample_weight
            As `fit` takes them.

        Returns
        -------
        score : float
            1 is perfect.
        """
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def assign(self, X: Any, y: Any, groups: Any, sample_weight: Any = None, offset: Any = None) -> Assignment:
        """Find the kinds of clients from some of their rows, whether they were in the fit or not.

        Parameters
        ----------
        X, y, groups, sample_weight, offset
            As `fit` takes them.

        Returns
        -------
        assignment : Assignment
            ``ids``, ``cluster``, ``probability`` and ``probabilities`` of the clients, sorted by id; as an array, it is
            ``cluster``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
        named: dict[str, Any] = {"intercept": self.model_.has_intercept, "features": self._names()}
        clients = Clients.from_arrays(X, y, groups, **named, offset=offset, weight=sample_weight)
        return self.model_.assign(clients, uncertainty=True)

    def report(self, path: str | Path) -> None:
        """Write the report of the fit, one HTML file that opens offline.

        Parameters
        ----------
        path : str or Path
            Where to write it.
        """
        from ..report import write_report

        check_is_fitted(self)
        write_report(Path(path), self.run_, self._known)

    # In a notebook: what scikit-learn shows and, once fitted, the kinds.
    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._kinds_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in shown:
            shown["text/html"] += self._kinds_html()
        return shown

    def _kinds_html(self) -> str:
        return self.model_._repr_html_() if hasattr(self, "model_") else ""

    def _asked(
        self, X: Any, groups: Any, history: Assignment | None, offset: Any = None
    ) -> tuple[Rows, Assignment | None]:
        """Give rows to predict, and what is known of their clients."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        more = {"intercept": self.model_.has_intercept, "features": self._names(), "offset": offset}
        rows = rows_from_arrays(X, None, groups, **more)
        if history is not None:
            self.model_.check_known(history)
        if groups is None:
            return rows, None
        return rows, self._known if history is None else self._known.updated(history)

    def _fit(self, clients: Clients) -> Fit:
        k, paper = self._n_clusters(), self.recipe == "paper"
        if self.recipe not in ("auto", "paper"):
            raise SettingsError(f"unknown recipe '{self.recipe}'; choose from auto, paper")
        if paper and self.personal:
            raise SettingsError("personal models go with recipe='auto'")
        if paper and (not isinstance(self.settings, PaperSettings) or k is None):
            raise SettingsError("recipe='paper' needs settings=PaperSettings(...) and a number for n_clusters")
        if not paper and not isinstance(self.settings, AutoSettings | None):
            raise SettingsError("recipe='auto' takes settings=AutoSettings(...)")
        settings: Any = self.settings or AutoSettings()
        if self.personal:
            settings = dataclasses.replace(settings, personal=True)
        if self.start is not None:
            settings = dataclasses.replace(settings, start=self._start(1 if paper else 2))
        return fit(LocalPool(clients), clients.features, k, settings, loss=self.family, seed=self._seed())

    def _start(self, most_dimensions: int) -> Any:
        """Give the caller's start as settings hold it: a tuple of numbers, or of such tuples."""
        try:
            start = np.asarray(self.start, dtype=np.float64)
        except (TypeError, ValueError):
            raise SettingsError("start must be an array of numbers") from None
        if not 1 <= start.ndim <= most_dimensions:
            raise SettingsError(f"start has shape {start.shape}: give a model, or for the auto recipe one per kind")
        return tuple(start.tolist()) if start.ndim == 1 else tuple(map(tuple, start.tolist()))

    def _n_clusters(self) -> int | None:
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            return None
        if isinstance(self.n_clusters, bool) or not isinstance(self.n_clusters, Integral):
            raise SettingsError(f"n_clusters = {self.n_clusters!r} must be 'auto' or a whole number, 1 or more")
        return int(self.n_clusters)

    def _seed(self) -> int:
        if self.random_state is None:
            return 0
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _names(self) -> tuple[str, ...]:
        names = getattr(self, "feature_names_in_", None)
        return tuple(names) if names is not None else tuple(f"x_{j}" for j in range(self.n_features_in_))
