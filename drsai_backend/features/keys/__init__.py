"""API keys are made, listed and revoked; `drsai_backend.access` tells whose one is."""
