"""The free parameters at a mixture with random effects, and Newton's steps in them within the cone of covariances."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from scipy.linalg import eigh

from ...core.arrays import Bools, Floats
from ...core.symmetric import unpacked
from ..updates import parameters
from .fitted import Fitted, gradient, information
from .psd_newton import PsdConstraint, maximise_barrier, unbound
from .singular_newton import SingularDiagonal, singular_diagonal, singular_face

_LEAST_BEND = 0.05
"""Where the likelihood bends by less than this share of Fisher's information, it is taken to bend so much."""
_AS_PROMISED, _FAR = 0.9, 0.05
"""A step along faces gains so much of what it promises, or another is taken; it is not tried where one within the cone
promises more than this for each parameter."""


class FreeParameters:
    """The free parameters at a mixture: theta, noise and weights (``split`` of them), then the covariances."""

    def __init__(self, found: Fitted) -> None:
        self.found = found
        self.k, self.dim = found.mixture.theta.shape[1:]
        expected = unpacked(found.reply.expected[0], found.reply.score.shape[-1])
        self.fisher: Floats = expected[:, self.dim + 2 :, self.dim + 2 :]
        """Of the numbers of Psi, (k, v, v)."""
        self.live = self._live()
        self.reduce = parameters(self.k, self.dim, found.rules.shared_noise, self.live)
        self.slope: Floats = self.reduce.T @ gradient(found)
        self.numbers = found.mixture.covariance[0][:, self.live]
        self.split = self.slope.size - self.numbers.size
        self._curvatures: dict[float, Floats] = {}
        self._steps: dict[float, Floats] = {}

    def _live(self) -> Bools:
        """Say which numbers of Psi there are, (v,): a column that is left out has no information."""
        if self.found.full:
            return np.ones(self.found.mixture.covariance.shape[-1], dtype=np.bool_)
        own = np.diagonal(self.fisher.sum(axis=0))
        return np.asarray(own > 0)

    def curvature(self, observed_share: float) -> Floats:
        """Give the information of the free parameters, (f, f)."""
        if observed_share not in self._curvatures:
            self._curvatures[observed_share] = np.asarray(
                self.reduce.T @ (self.reduce.T @ information(self.found, observed_share)).T
            )
        return self._curvatures[observed_share]

    def unbound(self, observed_share: float) -> Floats:
        """Take a step wherever it leads, (f,). Raises `LinAlgError` where the likelihood is not concave."""
        if observed_share not in self._steps:
            self._steps[observed_share] = unbound(self.curvature(observed_share), self.slope)
        return self._steps[observed_share]

    def in_cone(self, observed_share: float) -> tuple[Floats, float]:
        """Take a step anywhere within the cone. Gives the step (f,) and what it promises."""
        cone = PsdConstraint(self.k, self.dim if self.found.full else int(self.live.sum()), self.found.full)
        floor = 1e-6 * np.exp(self.found.mixture.log_variance[0]) / self.dim
        return maximise_barrier(
            self.curvature(observed_share), self.slope, self.unbound(observed_share), self.numbers.ravel(), cone, floor
        )

    def faces(self) -> list[SingularDiagonal]:
        """Find the faces on which the covariances lie."""
        fisher = self.fisher[:, self.live][:, :, self.live]
        slopes = self.slope[self.split :].reshape(self.k, -1)
        find: Callable[..., SingularDiagonal] = (
            partial(singular_face, dim=self.dim) if self.found.full else singular_diagonal
        )
        return [find(*about) for about in zip(self.numbers, slopes, fisher, strict=True)]

    def along(self, faces: Sequence[SingularDiagonal], values: Floats) -> Floats:
        """Turn what is said of the free parameters (f, c) into what it says of directions along faces. -> (p, c)."""
        parts = np.split(values[self.split :], self.k)
        moved = [face.directions.T @ part for face, part in zip(faces, parts, strict=True)]
        return np.concatenate([values[: self.split], *moved])

    def curvature_along(self, faces: Sequence[SingularDiagonal], observed_share: float) -> Floats:
        """Give the information of the directions along faces and what these cost, (p, p)."""
        whole = self.along(faces, self.along(faces, self.curvature(observed_share)).T)
        first = self.split
        for face in faces:
            last = first + len(face.cost)
            whole[first:last, first:last] += face.cost
            first = last
        return whole

    def newton(self, bold: bool) -> tuple[Floats, float]:
        """Take Newton's own step: along the faces if it is short enough to follow them, else anywhere within the cone.

        Gives the step (f,) and what it promises.
        """
        far = _FAR * self.slope.size
        with suppress(np.linalg.LinAlgError):
            if 0.5 * self.slope @ self.unbound(1.0) > far:
                step, promise = self.in_cone(1.0)
                if promise > far:  # other faces may be better
                    return step, promise
        try:
            step, promise = self.along_faces(bold)
        except np.linalg.LinAlgError:
            return self.in_cone(1.0)
        # Faces are curved: on the way along them the likelihood should rise as it would along a line.
        if np.isfinite(promise) and self.gain(step) < _AS_PROMISED * promise:
            return self.in_cone(1.0)
        return step, promise

    def gain(self, step: Floats) -> float:
        """Say what a step (f,) gains if the likelihood is quadratic."""
        return float(self.slope @ step - 0.5 * step @ self.curvature(1.0) @ step)

    def along_faces(self, bold: bool) -> tuple[Floats, float]:
        """Take Newton's own step along the faces. Gives the step (f,) and what it promises.

        Where the likelihood is not concave, there is none, unless ``bold``: then directions in which it bends upwards
        are taken as if it bent downwards as much, which leads away from a saddle; that promises nothing.
        """
        faces = self.faces()
        lean, whole = self.along(faces, self.slope[:, None])[:, 0], self.curvature_along(faces, 1.0)
        promise = np.inf
        try:
            step = unbound(whole, lean)
            promise = float(0.5 * lean @ step)
        except np.linalg.LinAlgError:
            if not bold:
                raise
            bends, axes = eigh(whole, self.curvature_along(faces, 0.0))
            step = axes @ (axes.T @ lean / np.maximum(np.abs(bends), _LEAST_BEND))
        ends = np.cumsum([self.split, *(face.directions.shape[1] for face in faces)])
        parts = np.split(step, ends[:-1])[1:]
        covariances = [face.moved(part) for face, part in zip(faces, parts, strict=True)]
        return np.concatenate([step[: self.split], np.concatenate(covariances) - self.numbers.ravel()]), promise
