"""How models and fits show themselves in a notebook: a table that takes on the notebook's own colours."""

from html import escape

from ..model.fit import Fit
from ..model.model import Model
from ..model.traits import by_difference, title, traits, typical_error

_SHOWN = 8
_CELL = "padding:.25em .9em .25em 0;text-align:right;border-bottom:1px solid rgba(128,128,128,.3)"


def model_html(model: Model) -> str:
    """Show the kinds with their shares, noise and the coefficients that tell most."""
    shown = by_difference(model)[:_SHOWN].tolist()
    noise, intercept = ["noise"] * (model.noise is not None), ["intercept"] * model.has_intercept
    names = ["kind", "share", *noise, *intercept]
    heads = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names + [model.features[f] for f in shown])
    lines = "".join(_line(model, j, shown) for j in range(model.n_clusters))
    error = typical_error(model)
    note = f"family {model.family}" if error is None else f"a row is typically missed by {error:.3g}"
    if len(shown) < len(model.features):
        note = f"the {len(shown)} of {len(model.features)} coefficients that tell most; {note}"
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in model.warnings)
    return (
        f'<div style="overflow-x:auto"><b>{title(model)}</b>'
        '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0">'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
        f'<div style="opacity:.75">{note}</div>{f"<ul>{warnings}</ul>" if warnings else ""}</div>'
    )


def fit_html(found: Fit) -> str:
    """Show a model and what it took."""
    took = f"{found.traffic.exchanges} exchanges, {sum(found.seconds.values()):.1f} s; {found.stop}"
    return f'{model_html(found.model)}<div style="opacity:.75">{escape(took)}</div>'


def _line(model: Model, j: int, shown: list[int]) -> str:
    cells = [str(j), f"{model.weights[j]:.1%}", *([] if model.noise is None else [f"{model.noise[j]:.3g}"])]
    errors = model.theta_error
    for feature in [*([len(model.features)] if model.has_intercept else []), *shown]:
        error = "" if errors is None else f'<br><small style="opacity:.7">±{errors[j, feature]:.2g}</small>'
        cells.append(f"{model.theta[j, feature]:.4g}{error}")
    told = escape("; ".join(map(str, traits(model, j))))
    return f'<tr title="{told}">{"".join(f"""<td style="{_CELL}">{cell}</td>""" for cell in cells)}</tr>'
