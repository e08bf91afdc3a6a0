"""Flare."""
