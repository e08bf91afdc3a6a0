"""What a fit finds, and what can be done with it.

For whoever uses a model: assign, predict, save, load, and what a person wants to know of its kinds.
"""
