"""Sums over blocks of clients: arrays in, arrays out.

For whoever wants to see the mathematics of a sum, or to make it faster. No kernel knows a query or a pool.
"""
