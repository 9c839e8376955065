# ruff: noqa: S608 - names are quoted, and values are literals
"""What ``JdbcSource`` asks of PostgreSQL: SQL alone, which ``fetchers.sql.postgresql`` runs."""

from __future__ import annotations

from fetchers.sql.database import WHOLE_DAYS, Range
from fetchers.sql.places import CLOCKS_GO_BACK_MINUTES_MAX
from fetchers.toolkit.postgres_texts import KEY_ORDER, text_literal

COLUMNS = f"""
select a.attname::text as name, (a.attnotnull or t.typnotnull) as not_null, b.typname::text as type,
  case when a.attnum = any(i.indkey::int2[]) then {KEY_ORDER} else '' end as sorted,
  case when t.typtype = 'd' then t.typtypmod else a.atttypmod end as modifier,
  (a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid), '') like 'nextval(%') as is_numbered,
  coalesce(array_position(i.indkey::int2[], a.attnum), -1)::int as key_at, c.relkind in ('v', 'm') as is_view
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case t.typtype when 'd' then t.typbasetype else t.oid end
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = {{oid}} and a.attnum > 0 and not a.attisdropped order by a.attnum"""
FAMILY = """
with recursive up as (select {oid} as oid union select inhparent from pg_inherits join up on inhrelid = up.oid),
  tree as (select oid from up union select inhrelid from pg_inherits join tree on inhparent = tree.oid)"""
"""A table with all that it is a part of, and all parts of that, partitions or heirs."""
SEQUENCES = """select s.objid as oid from pg_depend s join tree on s.refobjid = tree.oid
    where s.classid = 'pg_class'::regclass and s.deptype in ('a', 'i')
  union select n.refobjid from pg_attrdef d join tree on d.adrelid = tree.oid
    join pg_depend n on n.objid = d.oid and n.classid = 'pg_attrdef'::regclass
      and n.refclassid = 'pg_class'::regclass"""
SUBSCRIPTIONS = """
  select s.subname from pg_subscription s join pg_stat_subscription told on told.subname = s.subname
    join pg_subscription_rel r on r.srsubid = told.subid
  where s.subenabled and s.subdbid = (select oid from pg_database where datname = current_database()) and r.srrelid in (
    with recursive reads as (select oid from tree union select d.refobjid from reads join pg_rewrite w
      on w.ev_class = reads.oid join pg_depend d on d.objid = w.oid and d.classid = 'pg_rewrite'::regclass
      and d.refclassid = 'pg_class'::regclass)
    select oid from reads)"""
"""Those that write into a table's family, or into what a view shows; before 14 a superuser alone sees ``oid``."""


def bound_by_clock(wanted: Range, moment: str, zone: str | None) -> str:
    """The SELECT of a bound; ``zone``: of columns that have none themselves.

    It is the earliest local time that can still come: in autumn an hour comes twice (``places.earliest_to_come``).
    """
    unit = {6: "microseconds", 5: "milliseconds", 4: "milliseconds", 3: "milliseconds", WHOLE_DAYS: "day"}.get(
        wanted.precision, "second"
    )
    told, source = "m", ""
    if zone is not None:
        later = "date_trunc('minute', m) + n * interval '1 minute'"
        told = f"min((case n when 0 then m else {later} end) at time zone {text_literal(zone)})"
        source = f" cross join generate_series(0, {0 if zone == 'UTC' else CLOCKS_GO_BACK_MINUTES_MAX}) n"
    return f"select date_trunc('{unit}', {told})::text as bound from (select {moment} as m) moment{source}"
