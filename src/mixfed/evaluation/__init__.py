"""Whether an answer is any good.

For whoever checks claims: data of the paper's model, the distance to the truth, held-out comparison, and rivals.
"""
