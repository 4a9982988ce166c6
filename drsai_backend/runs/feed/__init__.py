"""The feed tells of a run: live, followed from any process, or replayed."""
