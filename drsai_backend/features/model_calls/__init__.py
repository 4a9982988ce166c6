"""Model calls of runs are listed here, with what the models were sent and have answered, where that is kept."""
