"""Names that every room must know: of the constant term, and of the files that a fit leaves behind."""

INTERCEPT = "(intercept)"

MODEL, CLIENTS, TRACE, RUN, REPORT = "model.json", "clients.parquet", "trace.parquet", "run.json", "report.html"
EXCHANGES = "exchanges.jsonl"
"""A line for every exchange of a federation."""
JOURNAL = "journal.bin"
"""The replies of a run that has not ended."""
