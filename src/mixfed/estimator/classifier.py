"""Classification: `MixedClassifier`, a logistic regression for each kind of client."""

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError
from ..model.assignment import Assignment
from ..model.fit import Fit
from ..model.model import Model
from ..recipes.settings import AutoSettings
from .regressor import MixedRegressor


class MixedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification for many clients that behave in a few unknown ways: a logistic regression for each kind.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of kinds; "auto" finds it from the data by BIC.
    settings : AutoSettings or None, default=None
        What the tuning-free recipe lets one choose.
    fit_intercept : bool, default=True
        Give every model a constant term.
    random_state : int, RandomState or None, default=None
        Same number, same result. None is 0: a fit is repeatable unless asked otherwise.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes, sorted; coefficients are log odds ratios of the second.
    coef_ : ndarray of shape (n_clusters, n_features)
        Coefficients of each kind, the largest kind first.
    intercept_ : ndarray of shape (n_clusters,)
        Constant terms.
    weights_ : ndarray of shape (n_clusters,)
        Shares of clients.
    coef_error_, intercept_error_ : ndarray or None
        Standard errors.
    n_clusters_ : int
        Number of kinds.
    clients_ : ndarray of shape (n_clients,)
        Ids of the clients in the fit, sorted.
    client_labels_ : ndarray of shape (n_clients,)
        The most probable kind of each.
    client_proba_ : ndarray of shape (n_clients, n_clusters)
        Probabilities of the kinds.
    bic_, log_likelihood_ : float
        As `MixedRegressor` has them.
    warnings_ : list of str
        What cannot be known from the data.
    model_ : Model
        The model, for saving.
    run_ : Fit
        The model and how it came about.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from mixfed import MixedClassifier, simulate
    >>> clients = simulate(target="binomial", n_clients=400, dim=3, n_clusters=2, least_rows=8, seed=0).clients
    >>> ids = np.repeat(clients.ids, clients.rows)
    >>> model = MixedClassifier(2).fit(clients.phi, np.where(clients.y > 0, "yes", "no"), groups=ids)
    >>> model.classes_.tolist()
    ['no', 'yes']
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"groups": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        settings: AutoSettings | None = None,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.settings = settings
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the kinds.

        Parameters
        ----------
        X, groups, sample_weight, offset
            As `MixedRegressor.fit` takes them.
        y : array-like of shape (n_samples,)
            Classes: two of them, of any sort.

        Returns
        -------
        self : MixedClassifier
            The fitted estimator.
        """
        _, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_: Array
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            found = "one class" if len(self.classes_) == 1 else f"{len(self.classes_)} classes"
            raise DataError(f"y has {found}: Only binary classification is supported, which takes two classes")
        inner = MixedRegressor(
            self.n_clusters,
            family="binomial",
            settings=self.settings,
            fit_intercept=self.fit_intercept,
            random_state=self.random_state,
        )
        self._regressor = inner.fit(X, codes.astype(np.float64), groups, sample_weight, offset)
        self.coef_: Floats = inner.coef_
        self.intercept_: Floats = inner.intercept_
        self.weights_: Floats = inner.weights_
        self.coef_error_: Floats | None = inner.coef_error_
        self.intercept_error_: Floats | None = inner.intercept_error_
        self.n_clusters_: int = inner.n_clusters_
        self.clients_: Array = inner.clients_
        self.client_labels_: Ints = inner.client_labels_
        self.client_proba_: Floats = inner.client_proba_
        self.bic_, self.log_likelihood_ = inner.bic_, inner.log_likelihood_
        self.warnings_: list[str] = inner.warnings_
        self.model_: Model = inner.model_
        self.run_: Fit = inner.run_
        return self

    def predict_proba(
        self, X: Any, groups: Any = None, history: Assignment | None = None, offset: Any = None
    ) -> Floats:
        """Give the probabilities of both classes.

        Parameters
        ----------
        X, groups, history, offset
            As `MixedRegressor.predict` takes them.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, 2)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        second = self._regressor.predict(X, groups, history, offset)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: Any, groups: Any = None, history: Assignment | None = None, offset: Any = None) -> Array:
        """Give the more probable class of each row.

        Parameters
        ----------
        X, groups, history, offset
            As `MixedRegressor.predict` takes them.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Classes.
        """
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X, groups, history, offset).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Give the share of rows whose class is foreseen.

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
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def assign(self, X: Any, y: Any, groups: Any, sample_weight: Any = None, offset: Any = None) -> Assignment:
        """Find the kinds of clients from some of their rows, whether they were in the fit or not.

        Parameters
        ----------
        X, y, groups, sample_weight, offset
            As `fit` takes them.

        Returns
        -------
        assignment : Assignment
            As `MixedRegressor.assign` gives it.
        """
        check_is_fitted(self)
        y = column_or_1d(y)
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise DataError(f"y has the class '{y[unknown.argmax()]}', which was not in the fit")
        return self._regressor.assign(X, (y == self.classes_[1]).astype(np.float64), groups, sample_weight, offset)

    def report(self, path: str | Path) -> None:
        """Write the report of the fit, one HTML file that opens offline.

        Parameters
        ----------
        path : str or Path
            Where to write it.
        """
        check_is_fitted(self)
        self._regressor.report(path)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
