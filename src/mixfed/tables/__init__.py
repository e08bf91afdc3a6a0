"""From a file or data frame to numbers with owners.

For whoever wonders how a table was read: how a CSV is written, what columns hold, which is the client, the target, a
feature, and what becomes of gaps.
"""
