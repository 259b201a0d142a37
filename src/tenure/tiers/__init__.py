"""Where the bytes of blocks lie: one module a tier. Nothing is imported here, so that no tier drags in another's packages."""
