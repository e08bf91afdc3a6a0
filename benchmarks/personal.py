"""How long personal models take, beside the plain fit of the same clients and kinds.

python benchmarks/personal.py [n_clients] [dim] [k] [seed]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from mixfed import AutoSettings, Clients, LocalPool, fit_auto


def make(n_clients: int, dim: int, k: int, seed: int = 0) -> Clients:
    """Simulate kinds whose clients deviate, with 2 rows or more, 5 on average."""
    rng = np.random.default_rng(seed)
    sizes = np.clip(rng.geometric(0.25, n_clients) + 1, 2, 60)
    owner = np.repeat(np.arange(n_clients), sizes)
    kind = rng.integers(0, k, n_clients)
    theta, half = rng.standard_normal((k, dim)), 0.3 * rng.standard_normal((k, dim, dim)) / np.sqrt(dim)
    own = theta[kind] + np.einsum("mde,me->md", half[kind], rng.standard_normal((n_clients, dim)))
    X = rng.standard_normal((len(owner), dim))
    y = np.einsum("nd,nd->n", X, own[owner]) + 0.5 * rng.standard_normal(len(owner))
    return Clients.from_arrays(X, y, owner)


def main() -> None:
    """Time both, in turn, five times; the ratio is that of the medians."""
    given = [int(argument) for argument in sys.argv[1:]]
    n_clients, dim, k, seed = (*given, *(100_000, 16, 3, 0)[len(given) :])
    clients = make(n_clients, dim, k, seed)
    few = clients.subset(np.arange(min(500, n_clients)))
    fit_auto(LocalPool(few), few.features, k, AutoSettings(personal=True))  # which compiles
    seconds, exchanges = np.empty((5, 2)), [0, 0]
    for own in seconds:
        for personal in (0, 1):
            begun = time.perf_counter()
            found = fit_auto(LocalPool(clients), clients.features, k, AutoSettings(personal=bool(personal)))
            own[personal], exchanges[personal] = time.perf_counter() - begun, found.traffic.exchanges
    plain, own = np.median(seconds, axis=0)
    print(
        f"{n_clients} clients, {clients.n_rows} rows, d = {dim}, k = {k}: plain {plain:.2f} s, "
        f"personal {own:.2f} s, ratio {own / plain:.2f}, exchanges {exchanges}"
    )


if __name__ == "__main__":
    main()
