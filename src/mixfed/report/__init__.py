"""The report of a fit: one HTML file that opens offline."""

from .page import report_html, write_report

__all__ = ["report_html", "write_report"]
