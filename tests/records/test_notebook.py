"""A notebook, run by a real kernel."""

from __future__ import annotations

import pytest

nbclient = pytest.importorskip("nbclient", reason="no nbclient: pip install '.[all]'")
nbformat = pytest.importorskip("nbformat", reason="no nbformat: pip install '.[all]'")
pytest.importorskip("ipykernel", reason="no ipykernel: pip install '.[all]'")
pytest.importorskip("pandas", reason="no pandas: pip install '.[notebooks]'")

CELLS = (
    "from asmtune.core.records.verdicts import Features\nFeatures({'a_bytes': 2.0})",
    "from asmtune.store.shipped import shipped_records\n"
    "softmax = (r for r in shipped_records() if 'softmax' in r.key.kernel)\n"
    "record = next(r for r in softmax if 'H200' in r.key.device)\nrecord",
    "record.to_pandas()[['median_us', 'winner']]",
)


@pytest.mark.slow
def test_a_notebook_shows_records() -> None:
    """Features, a shipped record and its frame come out as tables of pandas."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3")
    client.execute()
    data = [cell.outputs[0].data for cell in book.cells]
    features, record, frame = (part["text/html"] for part in data)
    assert "<th>a_bytes</th>" in features
    assert "on NVIDIA H200" in record
    assert record.count("<tr") == frame.count("<tr") == 7
    assert "Features(1 values)" in data[0]["text/plain"]
