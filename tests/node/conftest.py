"""Without the packages of the extra `tiers` none of these tests can run."""

from __future__ import annotations

import pytest

for package in ("xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'tenure[tiers]'")
