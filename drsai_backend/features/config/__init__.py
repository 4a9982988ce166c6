"""Config is what operators have stored of settings: by environment, in versions, and servers go by it at once."""
