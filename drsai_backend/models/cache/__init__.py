"""Answers that are kept, so that an equal request need not ask a model again."""
