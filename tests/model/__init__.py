"""The model-based test: random programs on the manager and on a slow reference in plain Python must agree after every step."""
