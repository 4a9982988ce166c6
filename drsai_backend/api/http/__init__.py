"""HTTP is the same for all routes here: bodies, event streams, errors, what surrounds a request, and the OpenAPI
document."""
