"""What a target may be: for whoever adds a family.

Each is a file: what a row says of a linear predictor (`base.Terms`), from which the sums of the tuning-free recipe are
made. The loss of a row and its slope, in `base`, are for the paper's Phase 2.
"""
