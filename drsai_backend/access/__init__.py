"""Access is decided here: keys and tokens tell who asks, and a principal what they may do."""
