"""The requests of the API as values, one module per noun: method, path, body and the type of the response."""
