"""Calls that are answered although an endpoint fails: which models are asked, in what order, and how often."""
