"""Registered tools are put, tried, counted and deleted; `drsai_backend.tools.registered` serves them to agents."""
