"""Limits say how many requests, tokens, runs and streams a key, a user, a tenant and all may have."""
