"""What a run tells: live, followed from any process, or replayed."""
