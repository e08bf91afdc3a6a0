"""All that is ever asked and answered.

For whoever wants to know what leaves a client: frozen queries and replies that add, a file for each topic; how they
become bytes; what a pool is; and the journal of replies. What is computed from rows has a file of the same name in
`clients/answers`.
"""
