"""The HTTP interface is, with the routes of features, the only package that knows FastAPI. `app.create_app` puts it
together. Importing it imports no FastAPI: programs that serve nothing read histories with it."""
