"""The steps of a run are derived from what is stored of it: read in pages, followed as they come, written as a
prompt."""
