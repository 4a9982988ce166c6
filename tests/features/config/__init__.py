"""Stored settings."""
