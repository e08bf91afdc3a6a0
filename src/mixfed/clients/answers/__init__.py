"""What clients answer, computed from their rows.

For whoever audits the mathematics of an exchange: a file for each of `exchange`, of the same name.
"""
