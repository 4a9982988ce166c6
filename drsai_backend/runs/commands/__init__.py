"""Commands are what people ask of threads whose run is live, waits or is paused; and what waits in the queue."""
