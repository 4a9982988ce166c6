"""The teams of the tests.

`scenarios`: one or more of every kind, on scripted models in the process. `conversations`: random ones, from JSON.
`foreign`: parts of both that users write themselves. `failing`: teams that raise, `slow`: teams to be cancelled,
`working`: teams whose tools note down their calls. `served`: teams of servers, on models that answer over HTTP.
`crew`: a few whose models the test holds in its hand.
"""
