"""Work has the durable jobs of features: what is to be done in the background, by any process, and stored once.

A feature enqueues a job in a transaction of its own (`jobs`); `workers` takes it up by a lease (`claims`), in every
process that runs teams, and calls the feature's handler; `kinds` is what a feature says of that.
"""
