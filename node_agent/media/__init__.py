"""Boot media: each machine's own medium, made from the common one while it is served."""
