"""Tables as they are captured: as log or catalogue describe them, with what only the catalogue has of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fetchers.postgres_cdc.catalogue import Catalogue, catalogue
from fetchers.postgres_cdc.columns import Type
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable
from fetchers.postgres_cdc.pgoutput import LogRelation
from fetchers.postgres_cdc.snapshot import select
from fetchers.sdk import Fatal
from fetchers.toolkit.change_form import ChangeForm


class CapturedTables:
    """Of one connector: with types, and the order of the key, which the log does not tell.

    What is read of a table beside the log is captured by the same value as its changes, where both describe it in the
    same words. If each knew other labels of an enum, every change that comes would tell that the table was altered, and
    the stretch would be read again for ever.
    """

    def __init__(self, config: PostgresCdcConfig, form: ChangeForm) -> None:
        """None yet."""
        self._config = config
        self._form = form
        self._logged: dict[int, tuple[LogRelation, CapturedTable]] = {}
        self._asked: dict[int, CapturedTable] = {}
        """As the catalogue was asked for them last."""
        self._apart: set[tuple[str, str]] = set()
        """Schema and name of tables that are known to have topics of their own. One that is not among them has all
        tables looked at, and this is what is known then: of two that share a topic the later one is always such a one.
        """

    def of(self, relation: LogRelation) -> CapturedTable:
        """Of each description that the log gives, as the catalogue is when its first rows are read. Blocks."""
        self.look_up([relation])
        return self._logged[relation.oid][1]

    def look_up(self, relations: Iterable[LogRelation]) -> None:
        """Ask the server, in one session, for what the log does not say of those whose description is new. Blocks."""
        news = [one for one in relations if one.oid not in self._logged or self._logged[one.oid][0] is not one]
        if not news:
            return
        with catalogue(self._config) as server:
            for relation in news:
                self._logged[relation.oid] = (relation, self.captured(server, relation))

    def has_key_still(self, relation: LogRelation) -> bool:
        """Whether the catalogue has the key that rows of this description get; True while it has none. Blocks."""
        known = self._logged.get(relation.oid)
        if known is None or known[0] is not relation:
            return True
        with catalogue(self._config) as server:
            return known[1].keys == server.keys(relation)

    def captured(self, server: Catalogue, relation: LogRelation) -> CapturedTable:
        """How a table's texts become events; raises ``Fatal``, also where its topic is another table's too. Blocks."""
        keys, table = server.keys(relation), self._asked.get(relation.oid)
        logged = self._logged.get(relation.oid)
        for known in (table, None if logged is None else logged[1]):
            if known is not None and known.relation == relation and known.keys == keys:
                if known.has_enums:
                    known.heed(server.types(relation.columns))
                break
        else:
            known = self._made(server, relation, keys)
        self._asked[relation.oid] = known
        return known

    def selects(self, server: Catalogue) -> Mapping[str, tuple[CapturedTable, str]]:
        """All tables by name, with the SQL of their rows. Blocks."""
        found = {}
        for schema, name in server.tables():
            relation = server.relation(schema, name)
            if relation is not None:
                table = self.captured(server, relation)
                found[f"{schema}.{name}"] = (table, select(table, server))
        return dict(sorted(found.items()))

    def _made(self, server: Catalogue, relation: LogRelation, keys: tuple[str, ...]) -> CapturedTable:
        self._demand_topic(server, (relation.schema, relation.name))

        def ask() -> Mapping[str, Type]:
            with catalogue(self._config) as session:
                return session.types(relation.columns)

        types = server.types(relation.columns)
        try:
            return CapturedTable(self._config, self._form, relation, types, keys=keys, ask=ask)
        except ValueError as error:
            told = f"{relation.schema}.{relation.name}: {error}; leave a column out (column.exclude.list)"
            raise Fatal(told) from error

    def _demand_topic(self, server: Catalogue, own: tuple[str, str]) -> None:
        if own in self._apart:
            return
        topic, sharing = self._form.topic(*own), defaultdict[str, set[tuple[str, str]]](set)
        for table in (own, *server.tables()):
            sharing[self._form.topic(*table)].add(table)
        for schema, name in sharing[topic] - {own}:
            both = f"{'.'.join(own)} and {schema}.{name}"
            raise Fatal(f"{both} would both be told in the topic {topic}; leave one out (table.exclude.list)")
        self._apart = {table for tables in sharing.values() if len(tables) == 1 for table in tables}

    def forget(self, oids: Iterable[int]) -> None:
        """Tables that are not there any more, and of which the log has nothing left."""
        for oid in oids:
            self._logged.pop(oid, None)
            self._asked.pop(oid, None)
