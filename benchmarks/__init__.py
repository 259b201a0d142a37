"""Ratios measured side by side in one run, against a peer or a physical limit; `make bench`."""
