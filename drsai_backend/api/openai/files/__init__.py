"""The files of a request, named by id, or images by their URL, are put into it here."""
