"""Travel goes to a thread's past: its turns and branches, forks, rewinds and histories of elsewhere."""
