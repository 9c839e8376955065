"""Bytes that are no UTF-8, which a database without an encoding (``SQL_ASCII``) takes and sends."""

from __future__ import annotations

from collections.abc import Callable

from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.log import Batch, Group
from fetchers.postgres_cdc.place import Place
from tests.unit.postgres_cdc import test_enums
from tests.unit.postgres_cdc.test_enums import TABLE, Server, inserted, moods_of

known = test_enums.known


def test_a_text_that_is_no_utf8_rejects_its_row_alone(known: Callable[[Server], CapturedTables]) -> None:
    """Null at its place, and told with its bytes; the rows around it are as they were."""
    server = Server()
    server.is_dropped = True  # so that the columns are texts
    messages = [inserted(1, "u", None), inserted(2, "aXX", "b").replace(b"XX", b"\xfcX"), inserted(3, None, "c")]
    group = Group(TABLE, messages, list(range(3)))
    batch = Batch(Place(1), Place(9), [group], [5] * 3, [0], [(7, 0)], [1], ends_transaction=True)
    page = known(server).of(TABLE).log_page(batch, group, handled_us=0, offset={}, ends_transaction=True)
    assert moods_of(page) == ["u", None, None]
    ((at, told),) = [(one.index, one.message) for one in page.rejections]
    assert at == 1
    assert told.startswith('public.t, key {"id":2}, ')
    assert told.endswith("column mood: the bytes 61fc58 are no UTF-8: is the database's encoding SQL_ASCII?")
