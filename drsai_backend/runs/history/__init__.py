"""Histories come from most clients, which resend the whole conversation and name no thread. `digest` names points of
conversations, `recognise` finds the thread that a history is of, and takes it to the point where the history ends."""
