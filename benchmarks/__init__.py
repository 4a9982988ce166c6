"""What this package costs, measured against stock AutoGen side by side in one run: `python -m benchmarks --help`.

Every number that matters is a ratio: two things are measured in alternating blocks in the same process, so that what
else the machine does falls on both. The definitions are in `teams` (what a run is) and `measure` (how it is timed);
each other module measures one thing and returns a `report.Section`.
"""
