"""Clients on disk."""

from __future__ import annotations

from .data import Clients

Held = Clients
