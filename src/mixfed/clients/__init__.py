"""Rows by client, wherever they are, and the pools that answer from them.

For whoever brings clients to a new place: in memory, in a packed folder, on the workers of a cluster. With `kernels`
the only room that sees rows of clients.
"""
