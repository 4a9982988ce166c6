"""Shares show threads to other users and roles of their tenant."""
