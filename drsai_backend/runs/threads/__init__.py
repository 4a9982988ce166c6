"""Threads as they are stored: who may do what with which, and what of them is shown to whom."""
