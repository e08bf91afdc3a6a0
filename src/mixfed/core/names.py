"""Names that every room must know."""

from __future__ import annotations

INTERCEPT = "(intercept)"
