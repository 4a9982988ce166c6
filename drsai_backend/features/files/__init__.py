"""Files of users are uploaded, listed, read and deleted; `drsai_backend.files` keeps them."""
