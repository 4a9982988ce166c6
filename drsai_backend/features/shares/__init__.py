"""Shares: threads are shown to other users and roles of their tenant."""
