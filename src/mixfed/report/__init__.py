"""All that a fit leaves behind for people: its folder, the report, the model card, MLflow, notebooks.

For whoever changes what people read of a fit. The report is one HTML file that opens offline.
"""

from .page import report_html, write_report

__all__ = ["report_html", "write_report"]
