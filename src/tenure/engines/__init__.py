"""Engines that run on Tenure: one module each. Nothing is imported here, so that none drags in another's packages."""
