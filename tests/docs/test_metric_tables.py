"""The documentation lists the metrics as the registry has them."""

import pytest

from tests.docs.metric_tables import TABLES, page_named, table_of


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_that_of_the_registry(name):
    """If not: ``python -m tests.docs.metric_tables`` writes it anew."""
    assert table_of(page_named(name).read_text()) == TABLES[name]()
