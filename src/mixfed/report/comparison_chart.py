"""The figure of a comparison: held-out errors of all rivals, as one SVG file that follows the reader's theme."""

import math
from collections.abc import Sequence
from html import escape

from ..evaluation.compare import SMALL, Comparison, Outcome
from .page import fill_in

_ROW, _NAMES, _PANEL, _GAP, _TOP, _TICKS = 30, 215, 300, 62, 44, 3
_TIE = 1.003
"""Who is within this of the best is as good."""


def comparison_svg(found: Comparison) -> str:
    """Draw a bar for each rival, overall and on small clients, with a dot for each split; the best is coloured."""
    panels = [("all clients", [one.rmse for one in found.outcomes], 0)]
    if all(math.isfinite(one.rmse_small) for one in found.outcomes):
        title = f"clients with at most {SMALL} training rows"
        panels.append((title, [one.rmse_small for one in found.outcomes], 1))
    width = _NAMES + len(panels) * (_PANEL + _GAP)
    height = _TOP + len(found.outcomes) * _ROW + 40
    parts = [
        f'<text x="{_NAMES - 12}" y="{_TOP + (i + 0.5) * _ROW + 4}" text-anchor="end">{escape(one.rival)}</text>'
        for i, one in enumerate(found.outcomes)
    ]
    for place, (title, means, which) in enumerate(panels):
        parts += _panel(_NAMES + place * (_PANEL + _GAP), title, means, found.outcomes, which)
    label = "root mean squared error of held-out rows: less is better, the best and its ties are blue; dots are splits"
    parts.append(f'<text class="soft" x="{_NAMES}" y="{height - 8}">{label}</text>')
    return fill_in("comparison.svg", width=width, height=height, parts="".join(parts))


def _panel(left: int, title: str, means: Sequence[float], outcomes: Sequence[Outcome], which: int) -> list[str]:
    splits = [[both[which] for both in one.by_split] for one in outcomes]
    # One model for all is often so far behind that it would press the others together: its bar is cut.
    best = min(means)
    most = min(max(max(map(max, splits)), max(means)), 2.5 * best)
    scale = _PANEL / (most or 1.0)
    floor = _TOP + len(outcomes) * _ROW
    parts = [f'<text x="{left}" y="{_TOP - 24}">{escape(title)}</text>']
    step = _round_step(most / _TICKS)
    for count in range(int(most / step) + 1):
        x = left + count * step * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{floor}"/>')
        parts.append(f'<text class="soft" x="{x:.1f}" y="{_TOP - 8}" text-anchor="middle">{count * step:g}</text>')
    for i, (mean, errors) in enumerate(zip(means, splits, strict=True)):
        top = _TOP + i * _ROW + 6
        name = "best" if mean <= best * _TIE else "bar"
        length = min(mean * scale, _PANEL)
        parts.append(f'<rect class="{name}" x="{left}" y="{top}" width="{length:.1f}" height="{_ROW - 12}" rx="3"/>')
        middle = top + (_ROW - 12) / 2
        dots = [left + error * scale for error in errors if error * scale <= _PANEL + 4]
        parts += [f'<circle class="split" cx="{dot:.1f}" cy="{middle}" r="2.5"/>' for dot in dots]
        parts.append(
            f'<text x="{left + max([length, *(dot - left for dot in dots)]) + 7:.1f}" y="{top + 14}">{mean:.4g}</text>'
        )
    return parts


def _round_step(least: float) -> float:
    """Give the smallest of 1, 2, 2.5, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((unit * power for unit in (1.0, 2.0, 2.5, 5.0) if unit * power >= least), 10.0 * power)
