"""Everything here needs pyzmq, also what opens no socket: the package offers its publisher."""

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'tenure[events]'")
