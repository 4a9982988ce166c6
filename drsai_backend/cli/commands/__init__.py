"""What can be typed: the commands with their arguments and options, by subject. `app` begins."""
