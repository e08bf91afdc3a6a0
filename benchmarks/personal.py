"""How long personal models take, beside the plain fit of the same clients and kinds.

python benchmarks/personal.py [n_clients] [dim] [k]
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
    """Time both, three times."""
    given = [int(argument) for argument in sys.argv[1:]]
    n_clients, dim, k = (*given, *(100_000, 16, 3)[len(given) :])
    clients = make(n_clients, dim, k)
    few = clients.subset(np.arange(min(500, n_clients)))
    fit_auto(LocalPool(few), few.features, k, AutoSettings(personal=True))  # which compiles
    for _ in range(3):
        seconds, exchanges = [], []
        for personal in (False, True):
            begun = time.perf_counter()
            found = fit_auto(LocalPool(clients), clients.features, k, AutoSettings(personal=personal))
            seconds.append(time.perf_counter() - begun)
            exchanges.append(found.traffic.exchanges)
        print(
            f"{n_clients} clients, {clients.n_rows} rows, d = {dim}, k = {k}: plain {seconds[0]:.2f} s, "
            f"personal {seconds[1]:.2f} s, ratio {seconds[1] / seconds[0]:.1f}, exchanges {exchanges}"
        )


if __name__ == "__main__":
    main()
