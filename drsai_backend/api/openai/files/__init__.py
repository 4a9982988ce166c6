"""Files are served at `/v1/files`, and put into the requests that name them."""
