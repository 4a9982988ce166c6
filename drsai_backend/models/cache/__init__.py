"""The cache keeps answers, so that an equal request need not ask a model again."""
