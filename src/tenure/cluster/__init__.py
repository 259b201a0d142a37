"""What several nodes know of each other."""
