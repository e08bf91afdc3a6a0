"""The algorithms, written against a pool: they never see rows, only sums.

For readers of the paper `paper`, line by line; `auto` needs nothing tuned, `personal` adds a model of each client's own
within its kind.
"""
