"""Flows have steps as data, what people say read as values, and the agent that leads through them."""
