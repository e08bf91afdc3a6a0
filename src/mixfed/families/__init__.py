"""What a target may be.

For whoever adds a family: the loss of a row and its slope, from which all sums are made, are written here and nowhere
else.
"""
