"""What the figures of a report show, as plain numbers. However many clients there are, the digest stays small."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model.assignment import Assignment
from ..model.model import Model
from ..model.traits import LEVEL, by_difference, deviations, level_spreads, levels

_LISTED = 1000
"""Of each sort (the largest, the least certain), so many clients are listed; if they are not many more, all."""
_LONGEST_ID = 60
_BINS = 20
_SIZES = np.array([1, 2, 3, 4, 5, 6, 8, 11, 16, 26, 51, 101, 251, 501, 1001, 2501, 5001, 10_001])
"""Where the classes of clients by number of rows begin."""
_TRACED = ("phase", "round", "exchanges", "likelihood", "rows", "loss", "movement", "candidates")


def digest(model: Model, assigned: Assignment | None, trace: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Give the numbers behind all figures. Labels that stayed with their owners (``assigned=None``) have none."""
    return {
        "kinds": _kinds(model, assigned),
        "coefficients": _coefficients(model),
        "choice": model.details.get("choice", []),
        "trace": [{name: record[name] for name in _TRACED if record.get(name) is not None} for record in trace],
        "residuals": model.details.get("residuals"),
        "certainty": None if assigned is None else _certainty(assigned),
        "sizes": None if assigned is None else _sizes(assigned),
        "clients": None if assigned is None else _clients(assigned),
    }


def _kinds(model: Model, assigned: Assignment | None) -> list[dict[str, Any]]:
    rows = model.details.get("kind_rows", [None] * model.n_clusters)
    counts = [None] * model.n_clusters if assigned is None else assigned.sizes.tolist()
    noises = [None] * model.n_clusters if model.noise is None else model.noise.tolist()
    return [
        {"share": share, "noise": noise, "rows": n_rows, "clients": clients}
        for share, noise, n_rows, clients in zip(model.weights.tolist(), noises, rows, counts, strict=True)
    ]


def _coefficients(model: Model) -> dict[str, Any]:
    """Give coefficients, the intercept, if any, being the last, and in which order they tell most."""
    errors, own = model.theta_error, deviations(model)
    return {
        "features": list(model.terms),
        "intercept": model.has_intercept,
        "values": model.theta.tolist(),
        "errors": None if errors is None else errors.tolist(),
        "spread": model.details.get("spread"),
        "order": by_difference(model).tolist(),
        "level": _level(model),
        "moves": model.target_family.words.moves,
        "deviations": None if own is None else own.tolist(),
    }


def _level(model: Model) -> dict[str, Any] | None:
    """Give by how much the kinds' usual levels differ from the mean of all, in the target's units."""
    own = levels(model)
    if own is None or model.n_clusters == 1:
        return None
    rows = np.maximum(np.asarray(model.details["kind_rows"]), 1.0)
    return {
        "name": LEVEL,
        "values": (own - model.weights @ own).tolist(),
        "errors": (level_spreads(model) / np.sqrt(rows)).tolist(),
        "raw": own.tolist(),
    }


def _certainty(assigned: Assignment) -> dict[str, Any]:
    """Count clients by the probability of their kind, and say what kinds those of each kind may be instead."""
    label, best, k = assigned.cluster, assigned.probability, assigned.probabilities.shape[1]
    # Nobody's best kind is less probable than 1 / k; bins of round numbers that begin there or before.
    low = 0.0 if k == 1 else np.floor(_BINS / k) / _BINS
    edges = np.linspace(low, 1.0, round((1.0 - low) * _BINS) + 1)
    place = np.clip(np.searchsorted(edges, best, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(label * (len(edges) - 1) + place, minlength=k * (len(edges) - 1)).reshape(k, -1)
    meant = np.array([np.bincount(label, column, k) for column in assigned.probabilities.T]).T
    chances = meant / np.maximum(assigned.sizes, 1)[:, None]
    return {
        "edges": np.round(edges, 6).tolist(),
        "counts": counts.tolist(),
        "chances": np.round(chances, 5).tolist(),
        "sure": float((best >= 0.9).mean()),
    }


def _sizes(assigned: Assignment) -> dict[str, Any]:
    """Count clients of each kind by their number of rows, with the share of them whose kind is almost certain."""
    k = assigned.probabilities.shape[1]
    place = np.searchsorted(_SIZES, assigned.rows, side="right") - 1
    counts = np.bincount(assigned.cluster * len(_SIZES) + place, minlength=k * len(_SIZES)).reshape(k, -1)
    sure = np.bincount(place, assigned.probability >= 0.9, len(_SIZES))
    total = counts.sum(axis=0)
    some = np.flatnonzero(total)
    shown = slice(some[0], some[-1] + 1)
    return {
        "labels": _size_labels(int(assigned.rows.min()), int(assigned.rows.max()))[shown],
        "counts": counts[:, shown].tolist(),
        "sure": np.round(sure / np.maximum(total, 1), 5)[shown].tolist(),
    }


def _size_labels(fewest: int, most: int) -> list[str]:
    """Name the classes, the outer ones by what is there."""
    begins, ends = np.maximum(_SIZES, fewest), np.minimum(np.append(_SIZES[1:] - 1, most), most)
    bounds = zip(begins.tolist(), ends.tolist(), strict=True)
    return [str(begin) if begin >= end else f"{begin}\N{EN DASH}{end}" for begin, end in bounds]


def _clients(assigned: Assignment) -> dict[str, Any]:
    """List all clients or, of many, the largest and the least certain: id, rows, kind, its probability, the next."""
    count = len(assigned)
    places = np.arange(count)
    if count > 3 * _LISTED:
        largest = np.argpartition(-assigned.rows, _LISTED)[:_LISTED]
        unsure = np.argpartition(assigned.probability, _LISTED)[:_LISTED]
        places = np.union1d(largest, unsure)
    places = places[np.lexsort([places, -assigned.rows[places]])]
    chances = assigned.probabilities[places]
    order = np.argsort(-chances, axis=1, kind="stable")
    ids = [_shown(client) for client in assigned.ids[places].tolist()]
    falling = np.round(np.take_along_axis(chances, order, axis=1), 4)
    columns = [ids, assigned.rows[places].tolist()]
    for kind, chance in zip(order.T[:2], falling.T[:2], strict=True):
        columns += [kind.tolist(), chance.tolist()]
    return {"total": count, "listed": [list(line) for line in zip(*columns, strict=True)]}


def _shown(client: Any) -> str:
    text = str(client)
    return text if len(text) <= _LONGEST_ID else text[: _LONGEST_ID - 1] + "\N{HORIZONTAL ELLIPSIS}"
