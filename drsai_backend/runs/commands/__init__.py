"""What people ask of threads: cancel, pause, resume; and what becomes of an input whose thread is busy."""
