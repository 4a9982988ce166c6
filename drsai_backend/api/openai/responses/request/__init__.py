"""A request for a response, read: its body, parameters, tools and items; and the shapes that answers share with it."""
