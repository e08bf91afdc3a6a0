"""The sentences of a report, for a person who has not read the paper."""

from collections.abc import Iterable
from typing import Any

from ..model.model import Model
from ..model.traits import counts, levels, title as kinds_found, typical_error


def title(model: Model, source: str | None) -> str:
    """Say what was found."""
    return f"{kinds_found(model)} in {source}" if source else kinds_found(model)


def kinds(model: Model) -> str:
    """Say what kinds are."""
    target = model.target_column or "the target"
    if model.n_clusters == 1:
        tried = max((entry["n_clusters"] for entry in model.details.get("choice", [])), default=0)
        reason = {0: ", as asked", 1: "; there was too little data to look for more kinds"}
        return f"All clients follow one model of {target}{reason.get(tried, '; more kinds were not worth it')}."
    alike = "have models close to one another" if model.personal else "follow the same model"
    return (
        f"Clients of one kind {alike} of {target}; kinds are in the order of their share. "
        "Below each are the coefficients that set it apart, and after them the mean of the other kinds. "
        "Choose a kind to bring it out in all figures."
    )


def coefficients(model: Model) -> str:
    """Say how to read coefficients."""
    several, moves = model.n_clusters > 1, model.target_family.words.moves
    said = "A mark is a kind's coefficient; where marks lie apart, kinds differ. " if several else ""
    if model.coef_error is not None:
        said += f"The line is a 95 % interval{': kinds whose lines do not overlap clearly differ' if several else ''}. "
    if model.personal:
        said += "Clients deviate from their kind: the pale bar holds the coefficients of 80 % of its clients. "
    if "spread" in model.details:
        said += (
            "Coefficients are multiplied by the column's standard deviation, so that columns in different units can be "
            f"compared: how much the {moves} changes when the column changes by a usual amount. Point at a mark for "
            "the coefficient in the column's own units. "
        )
    if levels(model) is not None and several:
        said += (
            f"The last row shows the kinds' usual levels, the {moves} where all columns are at their means, beside the "
            "mean of all kinds."
        )
    return said


def certainty(digest: dict[str, Any]) -> str:
    """Say how sure assignments are."""
    sure = digest["certainty"]["sure"]
    if sure == 1:
        return "All clients are placed with a probability of 0.9 or more."
    return (
        f"{percent(sure)} of the clients are placed with a probability of 0.9 or more. The others have rows that "
        "more than one kind explains; predictions for them are averaged over kinds, weighted by these probabilities."
    )


def sizes(digest: dict[str, Any]) -> str:
    """Say what the number of rows has to do with it."""
    labels, sure = digest["sizes"]["labels"], digest["sizes"]["sure"]
    if len(digest["kinds"]) == 1:
        return "How many rows clients have."
    said = "How many rows clients have, by kind. "
    if len(labels) > 1:
        said += (
            f"The more rows, the surer: {percent(sure[0])} of those with {labels[0]} {_rows(labels[0])} are placed "
            f"with 0.9 or more, {percent(sure[-1])} of those with {labels[-1]}."
        )
    return said


def choice(model: Model) -> str:
    """Say how the number of kinds was found."""
    entries, k = model.details["choice"], model.n_clusters
    said = "BIC is the misfit to the data plus a price for every parameter; the lowest wins. "
    own = next((entry["bic"] for entry in entries if entry["n_clusters"] == k), None)
    others = [entry["bic"] for entry in entries if entry["n_clusters"] != k]
    if own is not None and others and own < min(others):
        gap = min(others) - own
        strength = "far more than chance" if gap > 10 else "some evidence" if gap > 2 else "very little"
        told = f"{gap:,.0f}" if gap >= 10 else f"{gap:.1f}"
        said += f"{k} {'kind is' if k == 1 else 'kinds are'} ahead of the next best number by {told}: {strength}. "
    reasons = sorted({entry["reason"] for entry in entries if entry["reason"]})
    if reasons:
        said += f"Hollow marks do not count: {'; or '.join(reasons)}. "
    asked, rows = entries[0]["rows"], round(sum(model.details["kind_rows"]))
    if asked != rows:
        said += f"They were compared on a sample of {asked:,} rows, then the choice was checked on all."
    return said


def residuals(model: Model) -> str:
    """Say what residuals tell."""
    counted = model.details["residuals"]
    looked = counted["rows"] if "rows" in counted else round(sum(map(sum, counted["counts"])))  # as files of before
    sample = f" From a sample of {looked:,} rows." if looked < counts(model)[1] else ""
    if model.noise is None:
        return (
            "Quantile residuals: where each target lies among those that its kind's model expects, as a standard "
            "normal number. If the model is true they follow the dashed line. Bars far from it say that "
            "probabilities are too bold, that a column is missing, or that another family fits better."
            f"{sample}"
        )
    usual = "how far rows of a kind usually lie from it" if model.personal else "the kind's noise"
    return (
        f"What is left of the target once a kind's model is subtracted, divided by {usual}. The dashed line is the "
        "normal distribution that the probabilities rest on. Bars far from it (heavy ends, two humps, a lean to one "
        "side) say that probabilities are too bold, that a column is missing, or that the target should be transformed."
        f"{sample}"
    )


def convergence(phases: Iterable[str], stop: str) -> str:
    """Say how the fit went."""
    said = (
        "Each point is an exchange: one question to all clients, or a sample of them, and one sum as the answer. "
        "Within a phase the fit should get better and the models come to rest. "
    )
    if "second look" in phases:
        said += (
            "A second look starts lower, from kinds merged and split, and is kept only if it ends higher than the "
            "refinement before it. "
        )
    return said + (f"It ended because {stop}." if stop else "")


OVERLAP = (
    "Of the clients that were put into a kind, how many belong to each, by their probabilities. Kinds that mix "
    "are hard to tell apart."
)
"""How to read the table of mix-ups."""


def clients(digest: dict[str, Any]) -> str:
    """Say who is listed."""
    listed, total = len(digest["clients"]["listed"]), digest["clients"]["total"]
    if listed == total:
        return "All clients, by their rows."
    return f"The largest and the least certain of {total:,} clients; all of them are in clients.parquet."


def theory(local: bool) -> str:
    """Say what the paper's quantities are. ``local`` says whether the fit made local updates."""
    said = (
        "Quantities of the theorems in Su, Xu and Yang, Global Convergence of Federated Learning for Mixed "
        "Regression, for this fit. The paper leaves constants unnamed, which are 1 here: read them as orders of "
        "magnitude."
    )
    if not local:
        said += " Those of local updates are left open: this fit solved for its models exactly."
    return said


def tiles(model: Model, digest: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the figures at the top: a number, and what it is."""
    tried = [entry["n_clusters"] for entry in model.details.get("choice", [])]
    how = "as asked" if not tried else f"found among 1 to {max(tried)}" if max(tried) > 1 else "more were not tried"
    found = [(str(model.n_clusters), f"{'kind' if model.n_clusters == 1 else 'kinds'}, {how}")]
    error, pooled = typical_error(model), model.details.get("pooled_noise")
    if error is None:
        if model.log_likelihood is not None:
            found.append((f"{model.log_likelihood:.6g}", f"log likelihood ({model.family})"))
    elif pooled is not None and model.n_clusters > 1:
        found.append((f"{error:.3g}", f"typical error of a row; {pooled:.3g} with one model for all"))
    else:
        found.append((f"{error:.3g}", "typical error of a row"))
    spread = model.details.get("target_spread")
    if spread and error is not None:
        explained = percent(max(0.0, 1.0 - (error / spread) ** 2))
        alone = "" if model.n_clusters == 1 else f"; {percent(max(0.0, 1.0 - (pooled / spread) ** 2))} with one model"
        found.append((explained, f"of the variation explained{alone}"))
    if digest["certainty"] is not None and model.n_clusters > 1:
        found.append((percent(digest["certainty"]["sure"]), "of clients are placed with a probability of 0.9 or more"))
    return found


def percent(share: float) -> str:
    """Show a share as people do: never 0 % of something, never 100 % of less than all."""
    digits = 1 if 0 < share < 0.1 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def _rows(label: str) -> str:
    return "row" if label == "1" else "rows"
