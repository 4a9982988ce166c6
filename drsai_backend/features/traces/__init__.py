"""Traces tells OpenTelemetry of requests, runs, turns, model calls and tool calls, as spans of one trace."""
