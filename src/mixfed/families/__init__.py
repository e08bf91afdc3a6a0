"""What a target may be: for whoever adds a family.

The loss of a row and its slope, from which the sums of the paper's Phase 2 are made.
"""
