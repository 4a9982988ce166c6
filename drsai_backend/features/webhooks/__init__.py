"""Deliveries of webhooks are listed and repeated, and secrets are made; `drsai_backend.webhooks` sends them."""
