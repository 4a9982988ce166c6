"""HTTP for all routes alike: bodies, event streams, errors, what surrounds a request, and the OpenAPI document."""
