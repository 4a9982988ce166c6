"""A request for a response is read here: its body, parameters, tools and items; and the shapes that answers share with
it."""
