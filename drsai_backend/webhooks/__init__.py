"""Webhooks tell programs of the ends of background runs, by signed requests that are repeated until they arrive.

A run's last write stores the event (`database.webhooks`); `sender` sends it; `events` is what it sends;
`webhooks` has the verbs.
"""
