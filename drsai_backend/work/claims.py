"""Claims are what workers store of jobs: taken up, kept, given back, failed. Synchronous functions of a `Session`."""
