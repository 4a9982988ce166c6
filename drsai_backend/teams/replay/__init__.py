"""Replay gives a turn that is repeated what its agents did before."""
