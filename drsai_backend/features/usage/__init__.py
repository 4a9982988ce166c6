"""Usage has what model calls use and cost, of runs and beside them, summed by whatever they belong to."""
