"""The execution of a run goes from its first write to its last: what runs the team, what steers it, and what writes."""
