"""The fallback has calls answered although an endpoint fails: by which models, in what order, and how often."""
