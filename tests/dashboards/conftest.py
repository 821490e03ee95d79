import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, the app on the path, and nothing cached from another test."""
    streamlit = pytest.importorskip("streamlit", reason="the extra `dashboard` is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "dashboards"))
    # Streamlit's tests put a script of their own here and leave it; worker processes would run it.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    monkeypatch.delenv("TUNEPARTS_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    streamlit.cache_data.clear()
    return tmp_path
