"""Places where existing replay libraries break, numbered as in the project's list of traps.

Here stand those of time (4 and 12), priorities (7, 15 and 16) and cost (10). `test_snapshot.py` has checkpoints (13),
the sampling distributions' tests have 1, 2, 6, 8, 9, 11 and 14, those against the oracle 3 and 5.
"""
