"""Teams take part in runs: what they are told, what they say, and how they are recorded and repeated."""
