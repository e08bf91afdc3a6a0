"""EM for a mixture of regressions with one class per client, from given or random starts (as R's flexmix does)."""

import numpy as np

from ...clients.local import LocalPool
from ...clients.packed import Clients
from ...core.arrays import Floats
from ...exchange.census import Census
from ...exchange.mixture import Candidates, MixtureSums
from ...exchange.units import StandardUnits
from ...recipes.standardise import from_user, gram_query, inspect, make_units, to_user
from ...recipes.updates import Penalty, maximise, penalised_likelihood


class EM:
    """EM on the clients of one table."""

    def __init__(self, clients: Clients) -> None:
        self.clients, self.pool = clients, LocalPool(clients)
        self.rules = Penalty(prior_variance=1e-6)
        census = self.pool.ask(Census())
        columns = inspect(census, clients.intercept)
        self.units: StandardUnits = make_units(columns, self.pool.ask(gram_query(columns)), census.mass)[0]

    def at(self, theta: Floats, noise: float, weights: Floats) -> Candidates:
        """Start from models theta (k, d) in the table's units."""
        k = len(theta)
        log_variance = np.full((1, k), 2.0 * np.log(noise / self.units.scale))
        return Candidates(from_user(self.units, theta)[None], log_variance, np.log(weights)[None])

    def at_random(self, k: int, rng: np.random.Generator) -> Candidates:
        """Start from a random kind for every client."""
        labels = np.repeat(rng.integers(k, size=self.clients.n_clients), self.clients.rows)
        z, y = self.units.standardise(self.clients.design, self.clients.y)
        theta = np.stack([np.linalg.lstsq(z[labels == j], y[labels == j], rcond=None)[0] for j in range(k)])
        left = np.array([np.mean((y - z @ theta[j])[labels == j] ** 2) for j in range(k)])
        return Candidates(theta[None], np.log(np.maximum(left, 1e-12))[None], np.full((1, k), -np.log(k)))

    def climb(self, start: Candidates, steps: int = 2000, tolerance: float = 1e-9) -> tuple[Candidates, float]:
        """Step until the likelihood gains less than the tolerance, relative to the number of rows."""
        mixture, last = start, -np.inf
        for _ in range(steps):
            reply = self.pool.ask(MixtureSums(self.units, mixture))
            value = float(penalised_likelihood(mixture, reply, self.rules)[0])
            if value - last < tolerance * self.clients.n_rows:
                break
            mixture, last = maximise(mixture, reply, self.rules), value
        return mixture, self.likelihood(mixture)

    def likelihood(self, mixture: Candidates) -> float:
        """Log likelihood in the target's units."""
        reply = self.pool.ask(MixtureSums(self.units, mixture))
        return float(reply.likelihood[0] - self.clients.n_rows * np.log(self.units.scale))

    def models(self, mixture: Candidates) -> Floats:
        """Give the models in the table's units, (k, d)."""
        return to_user(self.units, mixture.theta[0])
