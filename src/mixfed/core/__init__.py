"""What every other room may use, and what knows nothing of statistics: for whoever writes code in another room.

Array types, errors, draws by key, packed symmetric matrices, the compiler and its threads, files that are written whole
or not at all.
"""
